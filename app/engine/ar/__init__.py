"""Level 0: the codes of the first codebook, sampled a frame a step for all jobs together.

Owns the KV cache of level 0, sequences, search and backtracking. Does not know running jobs, the
NAR levels or samples.
"""
