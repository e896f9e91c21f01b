"""Which kernels are fused, and which run as operators of torch."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from torch import Tensor

from models.cuda.kernels import operators, reference
from samplers.ar import plain

NAMES: Final = ("norm", "gated", "store", "attend", "begin", "draw")
"""Of all kernels: functions of `models.cuda.kernels.reference`, and of `samplers.ar.plain`."""


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

    def norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """See `models.cuda.kernels.reference.norm`."""
        return (operators if "norm" in self.fused else reference).norm(x, weight, eps)

    def gated(self, gate_up: Tensor, activation: str) -> Tensor:
        """See `models.cuda.kernels.reference.gated`."""
        return (operators if "gated" in self.fused else reference).gated(gate_up, activation)

    def begin(
        self,
        numbers: Tensor,
        codes: Tensor,
        lengths: Tensor,
        stopped: Tensor,
        seen: Tensor,
        pages: Tensor,
        page: int,
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """See `samplers.ar.plain.begin`."""
        run = (operators if "begin" in self.fused else plain).begin
        return run(numbers, codes, lengths, stopped, seen, pages, page)

    @property
    def draws(self) -> bool:
        """Whether `samplers.ar.plain.draw` is fused."""
        return "draw" in self.fused

    @property
    def stores(self) -> bool:
        """Whether `store` is fused."""
        return "store" in self.fused

    @property
    def attends(self) -> bool:
        """Whether `attend` is fused."""
        return "attend" in self.fused


FUSED: Final = Kernels()
TORCH: Final = Kernels(frozenset())
