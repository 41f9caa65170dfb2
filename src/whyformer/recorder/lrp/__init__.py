"""Relevance: which functions have rules, what the rules are, and the books that choose among them."""
