"""Captures of a state: memory_summary, nvidia-smi, process lists and memory snapshots."""
