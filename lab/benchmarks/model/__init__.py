"""Benchmarks of models and samplers in this process, without a server.

Owns speed and accuracy of decoding, int8, windows and samplers. Does not know HTTP.
"""
