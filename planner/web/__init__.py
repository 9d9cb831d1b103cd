"""The same questions in a browser and over HTTP, on this machine alone unless another address is asked for."""
