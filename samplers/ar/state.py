"""The state of sampling between steps: one table, a slot a row, in memory allocated once.

A row has a slot from its beginning to its end and is never moved. What the host decides about it is
a few numbers, which go up before a step; all else is written on the device.
What is queued runs in order, so a row that begins, goes back or becomes a copy is written between
two steps, without waiting for them. What a row's state was at each length is kept, so that a rewind
restores nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from samplers.knobs.features import is_on
from samplers.knobs.params import SamplingParams
from samplers.ops.repeats import runs_of
from samplers.ops.rows import within
from samplers.processors.registry import READERS

NEVER = -(2**31)
"""The frame of an act that never was: longer ago than any interval."""


PREDICTED = -1
"""In place of a partner's slot: the unconditional logits are behind those of all slots."""


class HostColumn(IntEnum):
    """The columns of `SlotTable.numbers`, which the host alone writes."""

    ACTIVE = 0  # 1 if a kernel samples the row
    ATTEMPT = 1  # how often it was rewound
    LIMIT = 2  # frames that it may have
    KEY = 3  # of its random stream
    PROMPTED = 4  # codes of a prompt that its penalties count
    AVOID_UNTIL = 5  # the first frame at which `avoid` is not added to its logits any more
    UNGUIDED_UNTIL = 6  # the first frame at which it is guided again
    # the slot of its unconditional logits, its own if it is not guided, or `PREDICTED`
    PARTNER = 7


def null_place(partner: int, slot: int, slots: int) -> int:
    """Return where a row's unconditional logits are among those of so many slots, or behind."""
    return slots + slot if partner == PREDICTED else partner


class Avoided(NamedTuple):
    """What changes the logits of a row from its next frame on."""

    nats: Tensor  # ``(V,)`` float32, added to them; -inf forbids
    until: int  # the first frame at which they are the model's again
    unguided: bool = False  # whether there is no guidance until then


@dataclass(frozen=True)
class SampledCodes:
    """Codes ``(N,)`` int64 that a row begins with, and what was known when the last was sampled."""

    codes: Tensor
    attempts: int = 0  # how often the row was rewound before
    # mirostat's state after them, in bits, and the frame of entropix's last act; None: a new row's
    state: tuple[float, int] | None = None


@dataclass(frozen=True, eq=False)
class RowInput:
    """What a row begins with, and what never changes about it; the beams of one search share it."""

    params: SamplingParams
    seed: int
    max_frames: int
    utterance: int = 0  # names its random stream, with the seed and the candidate
    candidate: int = 0  # which of several sequences of the utterance it is
    prompt: Tensor | None = None  # level 0 ``(N,)`` int64 of its voice, which penalties may count
    silent: Sequence[int] = ()  # the codes that entropix pauses with; without any it never does
    sampled: SampledCodes | None = None

    @property
    def prompted(self) -> int:
        """How many codes of the prompt its penalties count."""
        counted = self.prompt if self.params.penalty_includes_prompt else None
        return 0 if counted is None else len(counted)

    @property
    def acts(self) -> bool:
        """Whether entropix may branch, or pause, which needs `silent`."""
        pauses = bool(self.silent) and is_on("pause", self.params)
        return pauses or is_on("branch", self.params)

    @cached_property
    def tracks_runs(self) -> bool:
        """Whether a processor reads runs, see `samplers.ops.repeats.runs_of`."""
        return any(one.reads_runs and one.acts_on(self.params) for one in READERS)


def lookback(params: SamplingParams) -> int:
    """Return how many of a row's newest codes its processors read; `rows.ALL` is all."""
    return max((one.lookback(params) for one in READERS if one.acts_on(params)), default=0)


class SlotTable:
    """The state of S slots, each of up to N frames, after P codes of a prompt.

    With ``shared`` a CPU reads the host's numbers where they are; else they are sent before a step.
    """

    def __init__(
        self,
        slots: int,
        *,
        frames: int,
        vocab_size: int,
        prompt: int = 0,
        device: torch.device = torch.device("cpu"),  # noqa: B008
        shared: bool = True,
    ) -> None:
        # ``[S, len(Host)]`` int64, the host's side of `numbers`
        self.host = np.zeros((slots, len(HostColumn)), np.int64)
        self.host[:, HostColumn.PARTNER] = range(slots)
        numbers = torch.from_numpy(self.host)
        shared = shared and device.type == "cpu"
        # ``[S, len(Host)]`` int64
        self.numbers = numbers if shared else torch.zeros_like(numbers, device=device)
        # ``[S, V]`` float32, added to the logits of some frames
        self.avoid = torch.zeros(slots, vocab_size, device=device)
        # ``[S, P + N + 1]`` int64: the prompt that penalties count, then the frames
        self.codes = torch.zeros(slots, prompt + frames + 1, dtype=torch.int64, device=device)
        # ``[S]`` int64, frames sampled
        self.lengths = torch.zeros(slots, dtype=torch.int64, device=device)
        # ``[S]`` bool, which have ended
        self.stopped = torch.zeros(slots, dtype=torch.bool, device=device)
        # The stop, too, has a next state: one column past the last length.
        # ``[S, N + 2]`` float32 bits: mirostat's state at each length
        self.mu = torch.zeros(slots, frames + 2, device=device)
        # ``[S, N + 2]`` int64, the frame of entropix's last act, at each length
        self.last_act = torch.zeros(slots, frames + 2, dtype=torch.int64, device=device)
        # ``[S]`` float32 nats, log-probabilities of beams; -inf: a row holds none
        self.beam_scores = torch.zeros(slots, device=device)
        self.held = [0] * slots  # an upper bound of the frames of each slot, on the host
        self._runs: Tensor | None = None

    @property
    def runs(self) -> Tensor:
        """``[S, P + N]`` int64 of `samplers.ops.repeats.runs_of`; made when it is asked for."""
        if self._runs is None:
            self._runs = torch.zeros_like(self.codes[:, :-1])
        return self._runs

    def activate(self, slots: Sequence[int]) -> None:
        """Have a kernel sample these rows and no others."""
        self.host[:, HostColumn.ACTIVE] = 0
        self.host[slots, HostColumn.ACTIVE] = 1

    def avoids(self, slots: Sequence[int]) -> bool:
        """Whether anything is to be avoided at the next frame of any of some rows."""
        ends = self.host[list(slots), HostColumn.AVOID_UNTIL].tolist()
        return any(self.held[slot] < end for slot, end in zip(slots, ends, strict=True))

    def note_sampled(self, slots: Sequence[int], frames: int = 1) -> None:
        """Note that so many frames of some rows were queued."""
        limits = self.host[:, HostColumn.LIMIT].tolist()
        for slot in slots:
            self.held[slot] = min(self.held[slot] + frames, limits[slot])

    def begin(self, slot: int, row: RowInput, key: int) -> None:
        """Write what a row begins with: every column, so that nothing of the last one is left."""
        device = self.codes.device
        length = 0
        sampled = row.sampled
        self.mu[slot].fill_(within(row.params.mirostat_tau)).mul_(2)
        self.last_act[slot] = NEVER
        past = self.codes.new_zeros(0)
        if row.prompt is not None and row.prompted:
            past = row.prompt.to(device)
        if sampled is not None:
            length = len(sampled.codes)
            past = torch.cat([past, sampled.codes.to(device)])
            if sampled.state is not None:
                self.mu[slot, length], self.last_act[slot, length] = sampled.state
        if len(past):
            self.codes[slot, : len(past)] = past
        self.beam_scores[slot] = 0.0
        self._go_on(slot, row, length)
        numbers = self.host[slot]
        numbers[HostColumn.ACTIVE] = 1
        numbers[HostColumn.KEY] = key
        numbers[HostColumn.LIMIT] = row.max_frames
        numbers[HostColumn.ATTEMPT] = 0 if sampled is None else sampled.attempts
        numbers[HostColumn.PROMPTED] = row.prompted

    def rewind(self, slot: int, row: RowInput, length: int) -> None:
        """Shorten a row to its first ``length`` codes; a row that has ended goes on."""
        self.host[slot, HostColumn.ATTEMPT] += 1
        self._go_on(slot, row, length)

    def change(self, slot: int, row: RowInput, length: int) -> None:
        """Have a row go on as another one behind its first ``length`` codes."""
        self.host[slot, HostColumn.LIMIT] = row.max_frames
        self._go_on(slot, row, length)

    def copy(
        self, sources: Sequence[int], targets: Sequence[int], rows: Sequence[RowInput]
    ) -> None:
        """Copy rows over others, all different; ``rows`` are those of the sources."""
        device = self.codes.device
        source, target = (torch.tensor(slots, device=device) for slots in (sources, targets))
        longest = max(self.held[slot] for slot in sources)
        prompted = max(row.prompted for row in rows)
        tables = [
            self.lengths, self.stopped, self.beam_scores, self.codes[:, : prompted + longest],
            self.mu[:, : longest + 2], self.last_act[:, : longest + 2],
        ]  # fmt: skip
        if any(row.tracks_runs for row in rows):
            tables.append(self.runs)
        for table in tables:
            table.index_copy_(0, target, table.index_select(0, source))
        numbers = self.host[list(sources), : HostColumn.AVOID_UNTIL]
        held = [self.held[slot] for slot in sources]
        self.host[list(targets), : HostColumn.AVOID_UNTIL] = numbers
        for slot, bound in zip(targets, held, strict=True):
            self.held[slot] = bound

    def fork(self, slot: int, row: RowInput, code: int, length: int, key: int) -> None:
        """Give a copy of a row that holds ``length`` codes another last one, and other noise."""
        self.codes[slot, row.prompted + length - 1] = code
        self.host[slot, HostColumn.KEY] = key
        self._go_on(slot, row, length)

    def _go_on(self, slot: int, row: RowInput, length: int) -> None:
        """Have a row go on behind its first ``length`` codes, where nothing is to be avoided."""
        self.lengths[slot] = length
        self.stopped[slot] = False
        self.held[slot] = length
        self.host[slot, [HostColumn.AVOID_UNTIL, HostColumn.UNGUIDED_UNTIL]] = 0
        if row.tracks_runs:  # counted on the host, which waits for the device
            counted = runs_of(self.codes[slot, : row.prompted + length].tolist())
            self.runs[slot] = 0
            self.runs[slot, : len(counted)] = torch.tensor(counted, device=self.codes.device)
