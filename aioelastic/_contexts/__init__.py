"""What the caller holds: a context and its result."""
