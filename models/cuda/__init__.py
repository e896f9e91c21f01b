"""CUDA graphs, streams and pinned transfers; on a CPU each does the same work without a GPU.

Owns how work is queued on a device. Does not know models or what the tensors mean.
"""
