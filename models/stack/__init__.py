"""The transformer stack and its float KV cache: vectors in, vectors out.

Owns blocks, attention masks, cached passes, CUDA graphs of a step, batching of rows.
Does not know phonemes, codes, output heads, or number formats other than torch's floats.
"""
