"""Reports of recent speeches: request, codes, timings, trace.

Owns the bounded store of the last results, and writing them as JSON without blocking the loop.
Does not know how a speech is sent.
"""
