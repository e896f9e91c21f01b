"""Text that arrives in packets, cut into pieces as soon as a cut is certain.

Owns the search for borders. Does not know phonemes, languages' pronunciation or requests.
"""
