"""The rows of dataclasses of tensors."""

from dataclasses import fields, replace
from typing import Any, Self, cast

from torch import Tensor


class Rows:
    """A base of dataclasses whose fields are tensors ``(B, ...)``, such dataclasses, or None."""

    def take(self, rows: Tensor) -> Self:
        """Return some rows, by an ``(n,)`` int64 index; one may occur twice."""
        own = cast(Any, self)
        taken: dict[str, Any] = {}
        for field in fields(own):
            value = getattr(own, field.name)
            if field.init and isinstance(value, Tensor):
                taken[field.name] = value.index_select(0, rows)
            elif isinstance(value, Rows):
                taken[field.name] = value.take(rows)
        return cast(Self, replace(own, **taken))
