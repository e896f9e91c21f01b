"""The one exception of the text front end."""


class TextError(ValueError):
    """A text cannot be spoken; the message says why, in words for the person who wrote it."""
