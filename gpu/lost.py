"""Errors of a GPU. Loads no torch, as most of the engine is read without it."""


def is_device_lost(error: BaseException) -> bool:
    """Return whether every later call of a GPU fails, too, until the process is restarted.

    By the name that torch gives such errors; those of a capture, which all name it, spoil no more.
    """
    return type(error).__name__ == "AcceleratorError" and "captur" not in str(error)
