"""A step of plain rows sampled by one kernel in Triton, beside what it computes in torch.

Owns the kernel, and the numbers that it reads of a row. Does not know models. Importing it takes no
GPU and no Triton.
"""
