"""The `custom_generate` of `transformers`, which copies this file and calls `generate`."""

from valle_serve.hf import generate

__all__ = ["generate"]
