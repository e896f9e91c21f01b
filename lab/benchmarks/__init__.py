"""Measurements of models, the service and its speech; run by hand, tried by the tests.

Owns benchmarks with targets and their tables. Nothing imports it.
"""
