"""The tables and pictures of the documentation, on real models and data."""
