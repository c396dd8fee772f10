"""Runs the figures of `figures`: each measurement in a process of its own, in turns; then tables, JSON and charts."""
