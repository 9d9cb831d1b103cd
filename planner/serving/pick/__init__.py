"""Which card for this model, and which model for this card: candidates that are plans, ranked."""
