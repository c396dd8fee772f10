"""Attempts of a group: what to run, where it stands in the world, and when to run it again."""
