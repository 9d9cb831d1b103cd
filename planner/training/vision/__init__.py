"""Pictures: how many tokens and patches a processor makes of them, and what a tower keeps."""
