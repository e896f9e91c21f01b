"""Voices: recordings to imitate, their cards, and the codes that they become."""
