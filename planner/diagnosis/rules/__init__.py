"""From the figures of a message or a state to a class of failure."""
