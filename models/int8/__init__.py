"""Transformer passes with int8 weights and KV cache, for CPUs.

Owns quantisation, numba kernels down to the processor's instructions, and their cache on disk;
`quantized.quantize_linears` installs them in a model. Does not know text, codes or requests.
"""
