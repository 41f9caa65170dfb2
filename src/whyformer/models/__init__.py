"""A model and its tokenizer: loading them, asking for their facts, borrowing them for a run."""
