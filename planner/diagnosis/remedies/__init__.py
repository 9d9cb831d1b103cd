"""What to do about a verdict."""
