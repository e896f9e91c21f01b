"""Where each row of a step over pages goes on, as the host has it and as the device reads it."""

from collections.abc import Sequence

import numpy as np
import torch

from gpu.transfers import Upload
from models.stack.paged_cache import PAGE, PagePool


class RowPages:
    """The pages of S rows, and where each goes on in them. The host writes, `send` sends.

    Attributes:
        pages: ``[S, P]`` int64, the host's side of the pages of each row, in their order; the
            pool's padding where a row has none.
        sent_pages: The same on the device.
        origins: ``[S, P]`` int64 on the device: what is added to a position in a row to find it
            in the pool, of each page.
        constants: ``[5, S]`` int64 on the device, of each row: the slot whose newest code it is
            fed, its own but for that without the text; and, one less than of its first frame,
            where that is among the table's codes, among the row's positions, its position id, and
            how many positions it sees.
    """

    def __init__(self, pool: PagePool, slots: int, max_length: int, device: torch.device) -> None:
        self._padding = pool.padding
        self.sent_pages = torch.full((slots, -(-max_length // PAGE)), pool.padding, device=device)
        self._columns = -PAGE * torch.arange(self.sent_pages.shape[1], device=device)
        self.origins = torch.add(self._columns, self.sent_pages, alpha=PAGE)
        self.pages = np.full(self.sent_pages.shape, pool.padding)
        self._rows = np.zeros((5, slots), np.int64)
        self.constants = torch.zeros(self._rows.shape, dtype=torch.int64, device=device)
        self._send_pages = Upload(self.sent_pages).send
        self._send_constants = Upload(self.constants).send
        self._changed = True

    def place(self, slot: int, owner: int, first: int, length: int, start: int) -> None:
        """Have a row go on behind a prefix of so many positions, fed with an owner's codes.

        Its first frame is at place ``first`` of the table's codes, with position id ``start``.
        """
        self._rows[:, slot] = owner, first - 1, length - 1, start - 1, length
        self._changed = True

    def lay(self, slot: int, pages: Sequence[int]) -> None:
        """Have a row read and write some pages, and no others."""
        self.pages[slot] = self._padding
        self.pages[slot, : len(pages)] = pages
        self._changed = True

    def send(self) -> None:
        """Bring what has changed to the device."""
        if self._changed:
            self._send_constants(self._rows)
            self._send_pages(self.pages)
            torch.add(self._columns, self.sent_pages, alpha=PAGE, out=self.origins)
            self._changed = False
