"""Level 0: the codes of the first codebook, drawn a frame a step for all jobs together.

Owns the KV cache of level 0, hypotheses, search and backtracking. Does not know running jobs, the
finer levels or samples.
"""
