"""How a command says that it cannot go on."""

FAILED = 1
"""Exit status: something broke."""

MISUSED = 2
"""Exit status: what was asked for cannot be done."""


class CommandError(Exception):
    """Ends the command; the message is one line, `field: what is wrong`."""
