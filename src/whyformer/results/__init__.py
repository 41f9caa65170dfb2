"""What was found: explanations, numbers of an evaluation, tables."""
