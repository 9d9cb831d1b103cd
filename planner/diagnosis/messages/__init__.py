"""From the bytes of a log to its messages: passages, wordings, and what the lines around them say."""
