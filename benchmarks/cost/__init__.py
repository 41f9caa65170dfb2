"""What explaining and evaluating cost."""
