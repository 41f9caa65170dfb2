"""What a person sees: terminal, page, figure."""
