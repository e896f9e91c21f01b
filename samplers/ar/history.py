"""The newest codes of some rows, in the table of all slots."""

from collections.abc import Sequence

import torch
from torch import Tensor

from samplers.ar.state import RowInput, SlotTable


class HistoryView:
    """The codes of B rows of a table, found by index: the table is read as one line of entries.

    Args:
        index: ``(B,)`` int64, the rows' slots.
    """

    def __init__(
        self, table: SlotTable, slots: Sequence[int], rows: Sequence[RowInput], index: Tensor
    ) -> None:
        self._table = table
        self._begins = (index * table.codes.shape[1])[:, None]
        self._back = torch.arange(1, table.codes.shape[1] + 1, device=table.codes.device)
        self._newest = self._nothing = table.codes[: len(slots), :0]
        self._prompted = max(row.prompted for row in rows)
        self._held = [(slot, row.prompted) for slot, row in zip(slots, rows, strict=True)]

    @property
    def longest(self) -> int:
        """An upper bound of the codes that any of the rows has, with those of its prompt."""
        return max(self._table.held[slot] + prompt for slot, prompt in self._held)

    def read(self, lengths: Tensor, prompts: Tensor, width: int) -> tuple[Tensor, Tensor]:
        """Return the newest codes ``(B, width)``, without those of prompts, and with; -1: none.

        ``lengths`` ``(B, 1)`` and ``prompts`` ``(B, 1)`` are how many each has.
        """
        if not width:
            return self._nothing, self._nothing
        if self._newest.shape[1] != width:
            self._newest = self._begins - self._back[:width]
        ends = lengths + prompts if self._prompted else lengths
        places = self._newest + ends
        # Before a row's beginning lies another row, or the end of the table: any code.
        codes = self._table.codes.take(places)
        counted = codes.masked_fill_(places < self._begins, -1)
        if not self._prompted:
            return counted, counted
        return counted.masked_fill(places < self._begins + prompts, -1), counted

    def append(self, codes: Tensor, lengths: Tensor, prompts: Tensor) -> None:
        """Write ``(B,)`` codes behind the newest ones."""
        places = self._begins + lengths
        self._table.codes.put_(places + prompts if self._prompted else places, codes[:, None])
