"""Benchmarks of the speech itself, judged by speech recognition.

Owns takes (one recording of a sentence) and their figures. Does not know HTTP.
"""
