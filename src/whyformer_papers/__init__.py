"""The four papers again: their tables, figures, data and searches. `whyformer` itself imports nothing of it."""
