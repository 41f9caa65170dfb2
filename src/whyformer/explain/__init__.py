"""The front door: explanations of one's own texts, and how far to trust them."""
