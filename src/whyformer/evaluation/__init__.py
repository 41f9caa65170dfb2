"""Methods measured on a data set: planned, run in chunks, journalled, put into a table."""
