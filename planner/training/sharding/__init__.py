"""What one of several GPUs holds."""
