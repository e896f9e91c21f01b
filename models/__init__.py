"""Everything with weights, and the text front end: text to phonemes, codes and samples.

Owns model and codec architectures, their checkpoints, voices and number formats.
Does not know how a token is chosen (`samplers`) nor requests, jobs and HTTP (`app`).
"""
