"""Scripts that make or check files of this repository."""
