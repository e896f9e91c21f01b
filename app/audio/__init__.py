"""Audio files: samples to one of the formats, at a requested speed and loudness.

Does not know HTTP, requests, or how the samples were generated.
"""
