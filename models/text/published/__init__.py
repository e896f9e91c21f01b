"""The phonemes and tokens of public VALL-E checkpoints."""
