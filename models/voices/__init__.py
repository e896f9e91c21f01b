"""Voices: recordings to imitate, their cards, and the codes that they become.

Owns reading and checking audio files and the voices that ship with a model.
Does not know where uploads are stored, nor the language model.
"""
