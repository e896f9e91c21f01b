"""The one exception of the text front end."""


class TextError(ValueError):
    """A text cannot be spoken; the message tells its author why."""
