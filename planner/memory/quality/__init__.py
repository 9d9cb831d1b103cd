"""What a weight or cache format costs in quality: published measurements, never interpolated, no score."""
