"""The state of rows that stay where they are: each has a slot, and nothing is ever moved.

What the host decides about a row is a few numbers, `HOST`, which it may change between two steps;
what steps change is read by the host one step late. A row of a slot that has another `generation`
than the step before begins anew at the length `restart`, so joins and rewinds are the same thing.
"""

from dataclasses import dataclass, fields
from enum import IntEnum
from typing import NamedTuple

import torch
from torch import Tensor

from samplers.ar.chain import Chain
from samplers.ar.state import NEVER
from samplers.ops import filters
from samplers.ops.entropix import AttentionStatistics
from samplers.ops.repeats import count_runs, next_runs
from samplers.processors.draw import DrawResult
from samplers.processors.scores import Scores


class Host(IntEnum):
    """The columns of `RowState.numbers`, which the host alone writes."""

    ACTIVE = 0  # 1 if the row draws
    GENERATION = 1
    RESTART = 2  # the length at which this generation begins
    ATTEMPT = 3  # how often the row was rewound
    LIMIT = 4  # frames that the row may have
    KEY = 5  # of its random stream
    PROMPTED = 6  # codes of a prompt that its penalties count
    AVOID = 7  # the frame at which `avoid` is added to its logits; -1: none
    PREFIX = 8  # positions of the cache before its first frame
    START = 9  # position id of its first frame
    OWNER = 10  # the slot whose newest code it is fed: its own, but for the unconditional one
    PARTNER = 11  # the slot of its unconditional logits; its own if it is not guided


class RowsDrawn(NamedTuple):
    """What a step drew; each is ``(B,)``.

    Attributes:
        codes: Int64; the stop where a row has ended.
        stopped: Bool: which have ended.
    """

    codes: Tensor
    stopped: Tensor


@dataclass(eq=False)
class RowState:
    """The state of some rows; B is their number, N the codes that a row may hold.

    Attributes:
        numbers: ``[B, len(Host)]`` int64.
        avoid: ``[B, V]`` float32, added to the logits of one frame.
        codes: ``[B, N + 1]`` int64: the prompt that penalties count, then the frames.
        runs: ``[B, N]`` int64 of `samplers.ops.repeats.count_runs`; kept by chains that read it.
        lengths: ``[B]`` int64, frames drawn.
        stopped: ``[B]`` bool, which have ended.
        seen: ``[B]`` int64, the generation of the step before.
        mu: ``[B, frames + 2]`` float32 bits: mirostat's state at each length.
        last_act: ``[B, frames + 2]`` int64, the frame at which entropix last paused, at each
            length.
    """

    numbers: Tensor
    avoid: Tensor
    codes: Tensor
    runs: Tensor
    lengths: Tensor
    stopped: Tensor
    seen: Tensor
    mu: Tensor
    last_act: Tensor

    @classmethod
    def empty(
        cls,
        slots: int,
        *,
        frames: int,
        prompted: int,
        vocab_size: int,
        device: torch.device,
        numbers: Tensor | None = None,
    ) -> "RowState":
        """Return rows that draw nothing.

        Args:
            slots: B.
            frames: The most that a row may have.
            prompted: The most codes of a prompt that penalties may count.
            vocab_size: V.
            device: Where the logits will be.
            numbers: Memory for them, zeros; None: new memory.
        """
        longest = frames + prompted

        def zeros(*shape: int, dtype: torch.dtype = torch.int64) -> Tensor:
            return torch.zeros(slots, *shape, dtype=dtype, device=device)

        return cls(
            numbers=zeros(len(Host)) if numbers is None else numbers,
            avoid=zeros(vocab_size, dtype=torch.float32),
            codes=zeros(longest + 1),
            runs=zeros(longest),
            lengths=zeros(),
            stopped=zeros(dtype=torch.bool),
            seen=zeros(),
            mu=zeros(frames + 2, dtype=torch.float32),
            last_act=zeros(frames + 2) + NEVER,
        )

    def first(self, rows: int) -> "RowState":
        """Return a view of the first rows."""
        return RowState(*(getattr(self, one.name)[:rows] for one in fields(self)))

    def number(self, column: Host) -> Tensor:
        """Return a column of the host's numbers, ``[B]``."""
        return self.numbers[:, column]

    def begin_step(self) -> None:
        """Begin anew the rows of another generation than that of the step before."""
        generation = self.number(Host.GENERATION)
        anew = generation != self.seen
        self.lengths.copy_(torch.where(anew, self.number(Host.RESTART), self.lengths))
        self.stopped.logical_and_(~anew)
        self.seen.copy_(generation)

    def newest(self) -> Tensor:
        """Return the newest code of each row, ``[B]``; any where there is none."""
        place = (self.number(Host.PROMPTED) + self.lengths - 1).clamp(min=0)
        return self.codes.gather(1, place[:, None])[:, 0]

    def penalised(self, logits: Tensor) -> Tensor:
        """Return ``[B, V]`` logits, lowered where an attempt at this frame failed before."""
        applies = self.lengths == self.number(Host.AVOID)
        return torch.where(applies[:, None], logits + self.avoid, logits)

    def scores(self, logits: Tensor, lookback: int) -> Scores:
        """Return the scores of a step before any processor; see `SamplerState.scores`."""
        recent = counted = self.codes[:, :0]
        if lookback:
            counted = self._newest_first(lookback)
            prompted = self.number(Host.PROMPTED)[:, None]
            places = prompted + self.lengths[:, None] - self._back(lookback)
            recent = counted.masked_fill(places < prompted, -1)
        return Scores(
            logits,
            self.lengths[:, None],
            recent,
            counted,
            self.runs,
            self.number(Host.KEY)[:, None],
            self.number(Host.ATTEMPT)[:, None],
            limits=self.number(Host.LIMIT)[:, None],
        )

    def draw(
        self,
        chain: Chain,
        logits: Tensor,
        attention: AttentionStatistics | None,
        stop_token: int,
    ) -> RowsDrawn:
        """Draw the next code of every row, and append it to those that are active.

        Args:
            chain: For B rows.
            logits: ``[B, V]``.
            attention: Statistics of the model's attention, if the chain reads them.
            stop_token: The code that ends an utterance.
        """
        pipeline = chain.pipeline
        scores = pipeline.scores(filters.sanitise(logits), self)
        scores.attention = attention
        pipeline.run(scores, tracing=False)
        drawn = pipeline.drawer.draw(scores)
        full = self.lengths >= self.number(Host.LIMIT)
        stopped = self.stopped | drawn.empty | (drawn.codes == stop_token) | full
        codes = drawn.codes.masked_fill(stopped, stop_token)
        active = self.number(Host.ACTIVE) > 0
        self._append(codes, active & ~stopped, scores, drawn, keeps_runs=chain.kind.reads_runs)
        self.stopped.copy_(torch.where(active, stopped, self.stopped))
        return RowsDrawn(codes, stopped)

    def begin_row(self, slot: int, tau: float, prompt: Tensor | None, *, runs: bool) -> None:
        """Write what a row begins with.

        Args:
            slot: Which row.
            tau: Mirostat's target, bits.
            prompt: ``(n,)`` int64, the codes that penalties count before its own.
            runs: Whether its chain reads runs.
        """
        self.mu[slot], self.last_act[slot] = 2 * tau, NEVER
        if prompt is not None:
            self.codes[slot, : len(prompt)] = prompt
        if runs:
            self.recount(slot, torch.zeros(0, dtype=torch.int64) if prompt is None else prompt)

    def recount(self, slot: int, codes: Tensor) -> None:
        """Count the runs of a row anew from all its codes ``(n,)``."""
        self.runs[slot] = 0
        if len(codes):
            counted = count_runs(codes.cpu()[None].flip(1))[0]
            self.runs[slot, : len(codes)] = counted.to(self.runs.device, torch.int64)

    def _append(
        self,
        codes: Tensor,
        grows: Tensor,
        scores: Scores,
        drawn: DrawResult,
        *,
        keeps_runs: bool,
    ) -> None:
        """Write codes ``(B,)`` behind the others; only rows that grow count them."""
        following = scores.lengths + 1
        if drawn.mu is not None:
            self.mu.scatter_(1, following, drawn.mu)
        if scores.last_act is not None and scores.decision is not None:
            acted = torch.where(scores.decision.paused, scores.lengths, scores.last_act)
            self.last_act.scatter_(1, following, acted)
        # A row that does not grow writes behind its end.
        place = self.number(Host.PROMPTED) + self.lengths
        self.codes.scatter_(1, place[:, None], codes[:, None])
        self.lengths.add_(grows)
        if keeps_runs:
            runs = next_runs(self.runs, self._newest_first(self.runs.shape[1]))
            self.runs.copy_(torch.where(grows[:, None], runs, self.runs))

    def _back(self, width: int) -> Tensor:
        width = min(width, self.runs.shape[1])
        return torch.arange(1, width + 1, device=self.lengths.device)

    def _newest_first(self, width: int) -> Tensor:
        """Return the last codes of each row, ``(B, min(width, N))``, -1 before the beginning."""
        ends = self.number(Host.PROMPTED) + self.lengths
        places = ends[:, None] - self._back(width)
        return self.codes.gather(1, places.clamp(min=0)).masked_fill_(places < 0, -1)
