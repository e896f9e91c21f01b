"""Kernels of our own for a captured step, in Triton, each beside what it computes in torch.

Owns what each is tried with. Does not know samplers. Importing it takes no GPU and no Triton.
"""
