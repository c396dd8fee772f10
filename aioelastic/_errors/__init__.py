"""What can go wrong, and how it is said: exceptions, failures of ranks, error files and the report."""
