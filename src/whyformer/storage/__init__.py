"""Files: how they are read, checked and written."""
