"""The command line: what a person types, and what a person reads."""
