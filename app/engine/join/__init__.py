"""Utterances joined to one sound: tempo, trims, fades and pauses.

Owns what becomes of decoded samples. Does not know codes.
"""
