"""Mistakes that a recording forgives, seeded to see that a test finds them."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest


class Fault(NamedTuple):
    """A function in whose place another is called, with the right one before its arguments."""

    owner: Any
    name: str
    wrong: Callable[..., Any]

    def seed(self, patch: pytest.MonkeyPatch) -> None:
        right = getattr(self.owner, self.name)

        def wrong(*args: Any, **kwargs: Any) -> Any:
            return self.wrong(right, *args, **kwargs)

        patch.setattr(self.owner, self.name, wrong)
