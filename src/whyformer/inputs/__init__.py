"""What a model is given: texts or tensors, their units, and batches of them."""
