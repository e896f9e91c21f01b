"""Text that arrives in packets, cut into pieces as soon as a cut is certain.

Owns the search for boundaries. Does not know phonemes, pronunciation or requests.
"""
