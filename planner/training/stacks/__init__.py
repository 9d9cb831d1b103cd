"""What the training stacks and the models' own code do."""
