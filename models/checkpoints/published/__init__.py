"""The published checkpoints of e-c-k-e-r/vall-e: layouts, metadata, LoRA, training switches.

It knows what files contain, not where they are downloaded from (`models.checkpoints.hub`).
"""
