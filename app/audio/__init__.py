"""Audio files: samples to one of six formats, at a requested speed and loudness.

Owns encoding (libav), tempo, loudness and limiting, whole or as a stream.
Does not know HTTP, requests, or how the samples were generated.
"""
