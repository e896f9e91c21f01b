"""Sampling: every knob, and the way from a model's logits to codes.

Owns the declaration of the knobs, the processors, the draw, and the random noise.
Knows no model, no audio and no HTTP: tensors go in and come out.
"""
