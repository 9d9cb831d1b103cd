"""What each kind of block keeps for backward, written as its forward is written in transformers 5.24."""
