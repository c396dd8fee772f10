"""How a group lives and dies: exits, verdicts, the termination ladder."""
