"""The captured steps over pages, by their number of rows."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from gpu.graphs import Replay


@dataclass
class StepGraphs:
    """One graph for each number of rows.

    Attributes:
        sizes: Those numbers, ascending.
        attending: Of all rows, with the statistics of attention; None once it is closed.
        feeding: Those that leave the logits alone.
        sampling: Those that sample several frames; empty where no kernel does.
    """

    sizes: Sequence[int]
    attending: Replay | None = None
    feeding: dict[int, Replay] = field(default_factory=dict)
    sampling: dict[int, Replay] = field(default_factory=dict)

    @classmethod
    def up_to(cls, slots: int) -> "StepGraphs":
        """Return none yet, of sizes up to so many rows."""
        # No power of two that is nearly all: a row that is not used costs next to nothing.
        return cls([*(1 << n for n in range(slots.bit_length()) if 4 << n <= 3 * slots), slots])

    def size_for(self, rows: int) -> int:
        """Return the least size that has room for so many rows."""
        return next(size for size in self.sizes if size >= rows)

    def close(self) -> None:
        """Forget what was captured."""
        self.attending = None
        self.feeding.clear()
        self.sampling.clear()
