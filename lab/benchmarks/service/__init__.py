"""Benchmarks of a running server by its clients: load, leaks, faults, exactness.

Owns the clients' behaviour and its targets. Does not know models.
"""
