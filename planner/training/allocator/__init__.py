"""What torch's allocator makes of the step's tensors."""
