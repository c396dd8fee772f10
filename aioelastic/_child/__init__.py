"""What runs inside a rank before the user's program; standard library only."""
