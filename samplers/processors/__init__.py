"""Logits processors for the rows of a batch, from knobs to formulas, and the sample."""
