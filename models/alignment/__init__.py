"""Alignment of phonemes to frames, read from one attention head of level 0."""
