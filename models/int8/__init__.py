"""Transformer passes with int8 weights and KV cache, for CPUs.

`quantized.quantize_linears` installs them in a model.
"""
