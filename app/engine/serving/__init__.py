"""Serving: the queue, the three workers in their threads, capacity, metrics and restarts.

Owns which job is worked on next, and what its reader gets. Does not know phonemes, codes or models.
"""
