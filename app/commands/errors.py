"""Exceptions that end a command, with their exit statuses."""

FAILED = 1
"""Exit status of a failure."""

MISUSED = 2
"""Exit status for invalid arguments."""


TERMINATED = 143
"""Exit status after SIGTERM, as shells tell it."""


class Terminated(KeyboardInterrupt):
    """The command was ended by SIGTERM."""


class CommandError(Exception):
    """Invalid arguments; the message is one line, `field: what is wrong`."""

    status = MISUSED


class CommandFailed(CommandError):
    """A failure with valid arguments."""

    status = FAILED


class CheckWarning(CommandError):
    """Raised by a check of `doctor` for what works but not well."""
