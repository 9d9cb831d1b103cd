"""Torch's operations as bytes that live and die."""
