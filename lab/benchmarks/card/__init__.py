"""GPU benchmarks: exactness, speed and profiles on a CUDA device.

Owns `ticket`, which runs all parts in under nine minutes, each in its own process so that a failure
does not affect the others. Does not know how a machine with a GPU is obtained.
"""
