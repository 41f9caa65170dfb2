"""What the papers add to the command line, by entry points."""
