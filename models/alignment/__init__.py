"""Alignment of phonemes to frames, read from one attention head of level 0.

Owns the attention of a head over the text, and the monotonic path through it. Does not know words
or seconds.
"""
