"""What a client of any wire can do that speech is asked for over."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol, runtime_checkable

import httpx


class Listener(Protocol):
    """Somebody who has asked for a speech; leaving its context leaves the service."""

    def hear(self) -> None:
        """Wait for the first sound; no-op where it comes with the last."""

    def ending(self) -> str:
        """Read to the end: "whole", "cut off", or the code or words of an error."""


@runtime_checkable
class Session(Listener, Protocol):
    """Somebody who may ask for more over the same connection."""

    def again(self, text: str) -> str:
        """Ask for another speech; return how it ended."""


@runtime_checkable
class Canceller(Listener, Protocol):
    """Somebody who may give up a speech and stay connected."""

    def cancel(self) -> None:
        """Want no more of the speech."""


Wire = Callable[[httpx.Client, int, str], AbstractContextManager[Listener]]
"""Asks a server, of which a client and the Wyoming port are given, to speak a text."""
