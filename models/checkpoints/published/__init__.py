"""The published checkpoints of e-c-k-e-r/vall-e: layouts, metadata, training switches."""
