"""CUDA graphs, streams, pinned transfers and kernels; on a CPU each does the same work without one.

Owns how work is queued on a device. Does not know models, samplers or what the tensors mean.
"""
