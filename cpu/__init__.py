"""Functions compiled by numba for a CPU, and their machine code on disk.

Owns how such functions are compiled and kept. Does not know models, samplers or what they compute.
"""
