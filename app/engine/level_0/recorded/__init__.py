"""Level 0 on a GPU: a whole step, from the newest codes to the next, in one CUDA graph.

Owns the state of rows on the device and what is recorded. Does not know jobs.
"""
