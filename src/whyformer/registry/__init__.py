"""What can be named: methods, metrics and their options; how that is written, and what registers it."""
