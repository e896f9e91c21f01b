"""The codes that each row has drawn so far, on the device, read newest first."""

from collections.abc import Sequence

import torch
from torch import Tensor

from samplers.ops.repeats import count_runs, next_runs


class History:
    """The codes of each row of a batch, oldest first, with a length a row.

    Attributes:
        codes: ``(B, max_frames)`` int64; valid are the first `lengths` of a row.
        lengths: ``(B,)`` int64, how many codes each row holds.
        longest: Upper bound of `lengths`, on the host, to size tensors by.
    """

    def __init__(
        self, rows: int, max_frames: int, device: torch.device, *, track_runs: bool = False
    ) -> None:
        """Create empty rows.

        Args:
            rows: B.
            max_frames: How many codes a row may hold.
            device: Where the tensors are.
            track_runs: Whether to keep the table of `samplers.ops.repeats.count_runs`.
        """
        # A row that does not grow writes past its end, a full one into the last column.
        self._table = torch.zeros(rows, max_frames + 1, dtype=torch.int64, device=device)
        self.codes = self._table[:, :max_frames]
        self.lengths = torch.zeros(rows, dtype=torch.int64, device=device)
        self.longest = 0
        self._runs = torch.zeros_like(self.codes) if track_runs else None
        self._steps = 0
        self._begun = [0] * rows  # the step at which a row that grew at each step was empty

    @classmethod
    def join(cls, parts: Sequence["History"]) -> "History":
        """Return the rows of several histories as one, in order; the parts do not change.

        Runs are tracked if any part tracks them; in rows of other parts they start at zero.

        Args:
            parts: At least one, all on one device.
        """
        joined = cls(
            sum(len(part._begun) for part in parts),
            max(part.codes.shape[1] for part in parts),
            parts[0].codes.device,
            track_runs=any(part._runs is not None for part in parts),
        )
        joined.lengths = torch.cat([part.lengths for part in parts])
        joined._begun = [-bound for part in parts for bound in part._bounds()]
        joined.longest = max(part.longest for part in parts)
        start = 0
        for part in parts:
            rows, held = slice(start, start + len(part._begun)), part.longest
            joined.codes[rows, :held] = part.codes[:, :held]
            if joined._runs is not None and part._runs is not None:
                joined._runs[rows, :held] = part.runs
            start = rows.stop
        return joined

    def take(self, rows: Sequence[int], max_frames: int, *, track_runs: bool) -> "History":
        """Return a copy of some rows.

        Args:
            rows: Which, in the order of the copy.
            max_frames: How many codes each may hold.
            track_runs: Whether the copy tracks runs; only possible if this one does.
        """
        device = self.codes.device
        taken = History(len(rows), max_frames, device, track_runs=track_runs)
        index = torch.tensor(rows, dtype=torch.int64, device=device)
        bounds = [min(bound, max_frames) for bound in self._bounds()]
        taken._begun = [-bounds[row] for row in rows]
        taken.longest = held = max((bounds[row] for row in rows), default=0)
        taken.lengths = self.lengths.index_select(0, index)
        taken.codes[:, :held] = self.codes[:, :held].index_select(0, index)
        if taken._runs is not None:
            taken._runs[:, :held] = self.runs[:, :held].index_select(0, index)
        return taken

    def overwrite(self, rows: Sequence[int], sources: Sequence[int]) -> None:
        """Copy rows over others.

        Args:
            rows: The rows that change, all different.
            sources: The row, as it was before, that each becomes.
        """
        device, bounds = self.codes.device, self._bounds()
        index, source = (torch.tensor(given, device=device) for given in (rows, sources))
        for table in (self._table, self.lengths, self._runs):
            if table is not None:
                table.index_copy_(0, index, table.index_select(0, source))
        for row, place in zip(rows, sources, strict=True):
            self._begun[row] = self._steps - bounds[place]

    @property
    def runs(self) -> Tensor:
        """``(B, longest)`` int64, of `samplers.ops.repeats.count_runs`; needs ``track_runs``."""
        assert self._runs is not None
        return self._runs[:, : self.longest]

    def newest_first(self, width: int) -> Tensor:
        """Return the last ``width`` codes of each row.

        Args:
            width: How far back to look.

        Returns:
            ``(B, min(width, longest))`` int64, the newest code first, -1 before a row's beginning.
        """
        width = min(width, self.longest)
        if not width:
            return self.codes[:, :0]
        back = torch.arange(1, width + 1, device=self.codes.device)
        places = self.lengths[:, None] - back
        return self.codes.gather(1, places.clamp(min=0)).masked_fill_(places < 0, -1)

    def preload(self, row: int, codes: Tensor) -> None:
        """Fill an empty row with codes that it did not draw, as those of a voice's prompt.

        Args:
            row: Which row.
            codes: ``(N,)`` int64, oldest first; no more than a row can hold.
        """
        self.codes[row, : len(codes)] = codes
        self.lengths[row] = len(codes)
        self.longest = max(self.longest, len(codes))
        self._begun[row] = self._steps - len(codes)
        if self._runs is not None:
            self._runs[row : row + 1, : len(codes)] = count_runs(codes[None].flip(1))

    def append(self, codes: Tensor, rows: Tensor) -> None:
        """Add one code to some rows.

        Args:
            codes: ``(B,)`` int64.
            rows: ``(B,)`` bool, which rows grow; a full row must not.
        """
        self._table.scatter_(1, self.lengths[:, None], codes[:, None])
        self.lengths += rows
        self._steps += 1
        self.longest = min(self.longest + 1, self.codes.shape[1])
        if self._runs is not None:
            following = next_runs(self.runs, self.newest_first(self.longest))
            self._runs[:, : self.longest] = torch.where(rows[:, None], following, self.runs)

    def rewind(self, row: int, length: int) -> None:
        """Shorten a row to its first ``length`` codes.

        Args:
            row: Which row.
            length: How many codes to keep; no more than the row holds.
        """
        self.lengths[row] = length
        self._begun[row] = self._steps - length
        if self._runs is not None:
            recent = self.codes[row : row + 1, :length].flip(1)
            self._runs[row] = 0
            self._runs[row : row + 1, :length] = count_runs(recent)

    def _bounds(self) -> list[int]:
        """Return an upper bound of each row's length, without reading from the device."""
        most = self.codes.shape[1]
        return [min(self._steps - begun, most) for begun in self._begun]
