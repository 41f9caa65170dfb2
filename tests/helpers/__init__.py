"""Models, texts, files and comparisons that more than one test file uses; loaded once, under one name."""
