"""One rank as a process: starting it, watching its exit, reaching its group."""
