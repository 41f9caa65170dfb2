"""Tools for those who work on the package: comparing two commits, and later moving, renaming and counting."""
