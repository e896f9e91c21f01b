"""What a model computes in kernels of our own.

Owns no way to queue work on a device, which is `gpu`'s. Does not know samplers.
"""
