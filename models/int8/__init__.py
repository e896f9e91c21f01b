"""Transformer passes with int8 weights and KV cache, for CPUs; see `quantized.quantize_linears`."""
