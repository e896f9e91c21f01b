"""The version of the service; that of its package, or none of a tree that is not installed."""

from importlib.metadata import PackageNotFoundError, version
from typing import Final


def _installed() -> str:
    try:
        return version("valle-serve")
    except PackageNotFoundError:  # the ticket of a card, on a machine without a network
        return "0+source"


VERSION: Final = _installed()
