"""Sound on a GPU: finer levels and codec of many utterances' chunks in one CUDA graph.

Owns what is recorded, and the utterances whose chunks are made by it. Does not know jobs.
"""
