"""Kernels of our own for a captured step, in Triton, each beside what it computes in torch.

Owns which of them run: `Kernels`. Does not know models. Importing it takes no GPU and no Triton.
"""
