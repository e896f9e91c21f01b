"""Stacks that compute with integers of 8 bits, for CPUs.

`quantized` puts them in the place of float32 ones; `stack` runs the passes; `linear`, `cache` and
`attention` are what it runs them with, over `product` and `kernels`, which `compiling` compiles for
the processor at hand (`processors`).
"""
