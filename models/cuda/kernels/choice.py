"""Which kernels are fused, and which run as operators of torch."""

from dataclasses import dataclass
from typing import Final

from torch import Tensor

from models.cuda.kernels import operators, reference

NAMES: Final = ("norm", "gated", "store", "attend")
"""Of all kernels: functions of `models.cuda.kernels.reference`."""


@dataclass(frozen=True)
class Kernels:
    """The kernels that a recorded function is made of.

    Attributes:
        fused: Of `NAMES`, those that run as one kernel; the others are operators of torch.
    """

    fused: frozenset[str] = frozenset(NAMES)

    def norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        """See `models.cuda.kernels.reference.norm`."""
        return (operators if "norm" in self.fused else reference).norm(x, weight, eps)

    def gated(self, gate_up: Tensor, activation: str) -> Tensor:
        """See `models.cuda.kernels.reference.gated`."""
        return (operators if "gated" in self.fused else reference).gated(gate_up, activation)

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
