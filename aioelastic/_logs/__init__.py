"""Where a rank's output goes: specifications, destinations, lines, pumps and outlets."""
