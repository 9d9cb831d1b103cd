"""One training step: layers, head and loss, forwards and backwards."""
