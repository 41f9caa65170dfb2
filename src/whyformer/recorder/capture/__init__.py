"""Runs that a GPU does again without Python: captured once, and replayed."""
