"""Readings of what reports a state: summaries, nvidia-smi, snapshots."""
