"""Which kernels are fused, and which run as operators of torch."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from models.cuda.kernels import operators

NAMES: Final = tuple(operators.MODULES)
"""Of all kernels."""


@dataclass(frozen=True)
class Kernels:
    """The kernels that a recorded function is made of.

    Attributes:
        fused: Of `NAMES`, those that run as one kernel; the others are operators of torch.
        failed: Why others are not fused, by name.
    """

    fused: frozenset[str] = frozenset(NAMES)
    failed: Mapping[str, str] = field(default_factory=dict, compare=False)

    def __str__(self) -> str:
        """Return which are fused, and why others are not."""
        told = ", ".join(name for name in NAMES if name in self.fused)
        reasons = (f"{name} is torch's: {why}" for name, why in self.failed.items())
        return "; ".join([f"fused: {told or 'none'}", *reasons])

    def of(self, name: str) -> Callable[..., Any]:
        """Return a kernel: one operator if it is fused, else its reference."""
        found: Callable[..., Any] = getattr(operators, name)
        return found if name in self.fused else operators.reference_of(name)


FUSED: Final = Kernels()
TORCH: Final = Kernels(frozenset())
