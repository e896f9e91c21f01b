"""Sampling: every knob, and the way from a model's logits to codes."""
