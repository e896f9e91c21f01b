"""The last word: how a code is drawn from the scores that the steps left.

Greedy, categorical, mirostat (which truncates by itself and keeps a state) or repetition-aware,
each row its own way.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from samplers.ops import filters, mirostat, ras
from samplers.ops.draw import Draw, categorical, greedy, without_replacement
from samplers.processors.batch_params import BatchParams
from samplers.processors.entropix import branches
from samplers.processors.redraw import Redraw
from samplers.processors.scores import Scores


@dataclass
class Drawn:
    """What came of a draw.

    Attributes:
        codes: ``(B,)`` int64.
        logits: ``(B, V)`` float32, the scores that each code was drawn from.
        repeated: ``(B, 1)`` bool: repetition-aware sampling drew anew; None if it is off.
        mu: ``(B, 1)`` float32 bits, mirostat's next state; None if no row has it on, as the next.
        mirostat: ``(B, 1)`` bool, which rows have it on.
        ways: ``(B, n)`` int64, the code and others to begin with in a row that branches, as many
            as any row wants; -1 where there are no more. None if no row may branch.
    """

    codes: Tensor
    logits: Tensor
    repeated: Tensor | None = None
    mu: Tensor | None = None
    mirostat: Tensor | None = None
    ways: Tensor | None = None

    def take(self, rows: Tensor) -> "Drawn":
        """That of some rows, by an ``(n,)`` int64 index; a row may be taken twice."""
        repeated, mu, mirostat, ways = (
            None if column is None else column.index_select(0, rows)
            for column in (self.repeated, self.mu, self.mirostat, self.ways)
        )
        codes, logits = self.codes.index_select(0, rows), self.logits.index_select(0, rows)
        return Drawn(codes, logits, repeated, mu, mirostat, ways)


class Terminal:
    """The draw of a batch."""

    def __init__(self, rows: BatchParams) -> None:
        """Read the rows' params.

        Args:
            rows: The rows.
        """
        self._greedy = rows.flags([p.temperature <= 0 for p in rows.params])
        self._all_greedy = all(params.temperature <= 0 for params in rows.params)
        self._mirostat = Mirostat(rows) if rows.any("mirostat") else None
        self._ras = RepetitionAware(rows) if rows.any("ras") else None
        self._redraw = Redraw(rows) if rows.any("entropix") else None
        ways = [p.entropix_branch_rollouts for p in rows.params if branches(p)]
        self._most_ways = max(ways, default=0)

    @property
    def wants_mu(self) -> bool:
        """Whether a row has mirostat on, so that the scores must bring its state."""
        return self._mirostat is not None

    def draw(self, scores: Scores) -> Drawn:
        """Draw one code a row; a row that is all -inf gives any code.

        Args:
            scores: With mirostat's state, where a row has that on.
        """
        if self._mirostat:
            self._mirostat.truncate(scores)
        if self._all_greedy:
            drawn = Drawn(greedy(scores.logits), scores.logits)
        elif self._ras:
            drawn = self._ras.draw(scores)
        else:
            noise = scores.noise(Draw.CODE, scores.logits.shape[-1])
            drawn = Drawn(categorical(scores.logits, noise), scores.logits)
        if self._most_ways:
            noise = scores.noise(Draw.CODE, scores.logits.shape[-1])
            drawn.ways = without_replacement(scores.logits, noise, self._most_ways)
        if self._redraw:
            drawn.codes, drawn.logits = self._redraw(scores, drawn.codes, drawn.logits)
        if self._greedy is not None and not self._all_greedy:
            best = greedy(scores.logits)
            drawn.codes = torch.where(self._greedy[:, 0], best, drawn.codes)
        if self._mirostat:
            drawn.mu = self._mirostat.update(scores, drawn.codes[:, None])
            drawn.mirostat = self._mirostat.active
        return drawn


class Mirostat:
    """Mirostat for the rows that have it on; the others keep all codes.

    Attributes:
        active: ``(B, 1)`` bool, which have.
    """

    def __init__(self, rows: BatchParams) -> None:
        self._vocab_size = rows.vocab_size
        self.active = rows.column([rows.on("mirostat", p) for p in rows.params])
        self._version_1 = rows.flags([p.mirostat_mode == 1 for p in rows.params])
        self._version_2 = rows.flags([p.mirostat_mode == 2 for p in rows.params])
        self._truncated = rows.flags([p.mirostat_surprise == "truncated" for p in rows.params])
        self._tau = rows.column([p.mirostat_tau for p in rows.params])
        self._eta = rows.column([p.mirostat_eta for p in rows.params])
        self._full = self._tau

    def truncate(self, scores: Scores) -> None:
        """Remove what is too surprising."""
        self._full = scores.logits
        assert scores.mu is not None
        floor = torch.full_like(scores.mu, -torch.inf)
        if self._version_1 is not None:
            lowest = mirostat.version_1_floor(scores.ordered, scores.mu, self._vocab_size)
            floor = torch.where(self._version_1 & self.active, lowest, floor)
        if self._version_2 is not None:
            lowest = mirostat.version_2_floor(scores.logits, scores.mu)
            floor = torch.where(self._version_2 & self.active, lowest, floor)
        scores.keep_from(floor)

    def update(self, scores: Scores, codes: Tensor) -> Tensor:
        """Return mu, corrected by the surprise of what was drawn, ``(B, 1)`` int64."""
        assert scores.mu is not None
        log_prob = self._full.log_softmax(-1).gather(-1, codes)
        if self._truncated is not None:
            kept = scores.logits.log_softmax(-1).gather(-1, codes)
            log_prob = torch.where(self._truncated, kept, log_prob)
        # A row from which nothing could be drawn has no surprise to learn from.
        log_prob = torch.where(log_prob.isfinite(), log_prob, -self._tau * math.log(2))
        moved = mirostat.update(scores.mu, log_prob, self._tau, self._eta)
        return torch.where(self.active, moved, scores.mu)


class RepetitionAware:
    """Repetition-aware sampling for the rows that have it on; the others draw as they are."""

    def __init__(self, rows: BatchParams) -> None:
        self._active = rows.column([rows.on("ras", p) for p in rows.params])
        self._top_p = rows.column([p.ras_top_p for p in rows.params])
        self._top_k = rows.column([p.ras_top_k for p in rows.params])
        self._window = rows.column([p.ras_window for p in rows.params])
        self._tau = rows.column([p.ras_tau for p in rows.params])
        self._mask_first = rows.column([p.ras_mask_first for p in rows.params])

    def draw(self, scores: Scores) -> Drawn:
        """Draw from the nucleus, and anew from all codes where that repeats too soon."""
        logits, width = scores.logits, scores.logits.shape[-1]
        floor = ras.nucleus_floor(scores.ordered, self._top_p, self._top_k)
        narrow = filters.keep_from(logits, floor.masked_fill(~self._active, -torch.inf))
        first = categorical(narrow, scores.noise(Draw.CODE, width))[:, None]
        again = ras.repeats(first, scores.recent, self._window, self._tau) & self._active
        wide = ras.fallback(logits, first, self._mask_first)
        second = categorical(wide, scores.noise(Draw.SECOND, width))[:, None]
        codes = torch.where(again, second, first)[:, 0]
        return Drawn(codes, torch.where(again, wide, narrow), again)
