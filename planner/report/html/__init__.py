"""Results as one self-contained page: no network, no script needed to read it."""
