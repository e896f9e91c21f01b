"""How a command says that it cannot go on."""

FAILED = 1
"""Exit status: something broke."""

MISUSED = 2
"""Exit status: what was asked for cannot be done."""


class CommandError(Exception):
    """Ends the command; the message is one line, `field: what is wrong`."""

    status = MISUSED


class CommandFailed(CommandError):
    """The same, where nothing is wrong with what was asked for."""

    status = FAILED


class Doubt(CommandError):
    """What works, but not as well as it could; only `doctor` has doubts."""
