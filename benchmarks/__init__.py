"""Scripts that measure and tabulate; each is run from a clone as it stands."""
