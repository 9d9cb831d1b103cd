"""What an objective adds to a step."""
