"""The published checkpoints of e-c-k-e-r/vall-e: layouts, metadata, LoRA, training switches.

Owns what their files contain and how it maps to `models.valle.Valle`.
Does not know where files are downloaded from (`models.checkpoints.hub`).
"""
