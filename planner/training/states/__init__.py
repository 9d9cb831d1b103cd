"""What is trained, and what is kept for it."""
