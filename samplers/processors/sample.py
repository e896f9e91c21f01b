"""The sample: one code a row from the scores that the processors left.

Greedy, categorical, mirostat (which truncates by itself and keeps a state), repetition-aware, or
sampled again as entropix decided, each row its own way.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from samplers.knobs.params import SamplingParams
from samplers.ops import filters, mirostat, ras
from samplers.ops.rows import Rows
from samplers.ops.sample import NoiseStream, categorical, greedy, without_replacement
from samplers.processors.processor import BatchParams, HistoryReader, Scores


class Noise(NamedTuple):
    """The noise of one step, of `samplers.ops.sample.uniform`."""

    code: Tensor  # (B, V)
    second: Tensor  # (B, V), of a second sample; any if no row samples one
    candidates: Tensor  # (n, B, V), of the samples after the first of several candidates
    all: Tensor  # (m, B, V), these one behind the other


@dataclass
class SampleResult(Rows):
    """What was sampled in a step."""

    codes: Tensor  # (B,) int64
    logits: Tensor  # (B, V) float32, the scores that each code was sampled from
    # (B, 1) bool, whether repetition-aware sampling drew a second time; None if no row has it on,
    # as in the next two
    repeated: Tensor | None = None
    mu: Tensor | None = None  # (B, 1) float32 bits, mirostat's next state
    mirostat: Tensor | None = None  # (B, 1) bool, which rows have mirostat on
    # (B, n) int64 for rows that may branch: the code and the others to begin with, -1 where there
    # are no more; None if no row may branch
    alternatives: Tensor | None = None

    @property
    def empty(self) -> Tensor:
        """``(B,)`` bool, rows that have nothing to sample: only they give an excluded code."""
        return self.logits.gather(-1, self.codes[:, None])[:, 0] == -torch.inf


class TokenSampler:
    """Samples the codes of the rows of a batch."""

    def __init__(self, batch: BatchParams) -> None:
        params = batch.params
        self._greedy = batch.flags([p.temperature <= 0 for p in params])
        self._all_greedy = all(p.temperature <= 0 for p in params)
        self._mirostat = Mirostat(batch) if batch.any("mirostat_mode") else None
        self._ras = RepetitionAware(batch) if batch.any("ras") else None
        self._redraw = Redraw(batch) if batch.any("entropix") else None
        branches = zip(params, batch.is_on("branch"), strict=True)
        counts = [p.entropix_branch_rollouts for p, branch in branches if branch]
        self._alternatives = max(counts, default=0)
        self._again = self._ras is not None or (self._redraw is not None and self._redraw.resamples)
        streams: list[int] = [NoiseStream.CODE]
        if self._again:
            streams.append(NoiseStream.SECOND)
        if self._redraw:
            streams += [NoiseStream.CANDIDATE + number for number in range(self._redraw.candidates)]
        many = len(streams) > 1
        self._streams = torch.tensor(streams, device=batch.device)[:, None, None] if many else None

    @property
    def wants_mu(self) -> bool:
        """Whether a row has mirostat on, so that the scores must have its state."""
        return self._mirostat is not None

    def sample(self, scores: Scores) -> SampleResult:
        """Sample one code a row, any from a row of -inf alone; needs ``mu`` if `wants_mu`."""
        if self._mirostat:
            self._mirostat.truncate(scores)
        noise = self._noise(scores)
        others: list[Tensor] | None = None
        if self._all_greedy:
            sampled = SampleResult(greedy(scores.logits), scores.logits)
        elif self._ras:
            sampled = self._ras.sample(scores, noise)
        elif self._redraw and not self._again:  # from the same scores: all in one race
            first, *others = categorical(scores.logits, noise.all)
            sampled = SampleResult(first, scores.logits)
        else:
            sampled = SampleResult(categorical(scores.logits, noise.code), scores.logits)
        if self._alternatives:
            alternatives = without_replacement(scores.logits, noise.code, self._alternatives)
            sampled.alternatives = alternatives
        if self._redraw:
            sampled.codes, sampled.logits = self._redraw(scores, sampled, noise, others)
        if self._greedy is not None and not self._all_greedy:
            best = greedy(scores.logits)
            sampled.codes = torch.where(self._greedy[:, 0], best, sampled.codes)
        if self._mirostat:
            sampled.mu = self._mirostat.update(scores, sampled.codes[:, None])
            sampled.mirostat = self._mirostat.active
        return sampled

    def _noise(self, scores: Scores) -> Noise:
        """Return all noise of a step, made at once: a GPU is launched once, not once a sample."""
        width = scores.logits.shape[-1]
        if self._streams is None:
            is_random = not self._all_greedy or self._redraw is not None
            code = scores.noise(NoiseStream.CODE, width) if is_random else scores.logits
            return Noise(code, code, code[None], code[None])
        noise = scores.noise(self._streams, width)
        return Noise(noise[0], noise[int(self._again)], noise[1 + self._again :], noise)


class Mirostat:
    """Mirostat for the rows ``active`` (``(B, 1)`` bool); the others keep all codes."""

    def __init__(self, batch: BatchParams) -> None:
        params = batch.params
        self._vocab_size = batch.vocab_size
        self.active = batch.column(batch.is_on("mirostat_mode"))
        self._version_1 = batch.flags([p.mirostat_mode == 1 for p in params])
        self._version_2 = batch.flags([p.mirostat_mode == 2 for p in params])
        self._truncated = batch.flags([p.mirostat_surprise == "truncated" for p in params])
        self._tau = batch.column([p.mirostat_tau for p in params])
        self._eta = batch.column([p.mirostat_eta for p in params])
        self._full = self._tau

    def truncate(self, scores: Scores) -> None:
        """Exclude codes whose surprise is above ``scores.mu``."""
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
        """Return the next mu, ``(B, 1)`` float32 bits, after the ``(B, 1)`` codes sampled."""
        assert scores.mu is not None
        log_prob = self._full.log_softmax(-1).gather(-1, codes)
        if self._truncated is not None:
            kept = scores.logits.log_softmax(-1).gather(-1, codes)
            log_prob = torch.where(self._truncated, kept, log_prob)
        # A row from which nothing could be sampled has no surprise to learn from.
        log_prob = torch.where(log_prob.isfinite(), log_prob, -self._tau * math.log(2))
        moved = mirostat.update(scores.mu, log_prob, self._tau, self._eta)
        return torch.where(self.active, moved, scores.mu)


class RepetitionAware(HistoryReader):
    """Repetition-aware sampling for the rows that have it on; the others sample as usual."""

    features = ("ras",)

    def __init__(self, batch: BatchParams) -> None:
        params = batch.params
        self._active = batch.column(batch.is_on("ras"))
        self._top_p = batch.column([p.ras_top_p for p in params])
        self._top_k = batch.column([p.ras_top_k for p in params])
        self._window = batch.column([p.ras_window for p in params])
        self._tau = batch.column([p.ras_tau for p in params])
        self._mask_first = batch.column([p.ras_mask_first for p in params])

    def sample(self, scores: Scores, noise: Noise) -> SampleResult:
        """Sample from the nucleus, and from all codes where that repeats too soon."""
        logits = scores.logits
        floor = ras.nucleus_floor(scores.ordered, self._top_p, self._top_k)
        narrow = filters.keep_from(logits, floor.masked_fill(~self._active, -torch.inf))
        first = categorical(narrow, noise.code)[:, None]
        again = ras.repeats(first, scores.recent, self._window, self._tau) & self._active
        wide = ras.fallback(logits, first, self._mask_first)
        second = categorical(wide, noise.second)[:, None]
        codes = torch.where(again, second, first)[:, 0]
        return SampleResult(codes, torch.where(again, wide, narrow), again)

    @classmethod
    def lookback(cls, params: SamplingParams) -> int:
        """Return the window in which repetitions are counted."""
        return params.ras_window


class Redraw:
    """Samples again in rows where entropix decided so; the others keep their codes.

    *Resample* excludes the code that was sampled and samples another: P(j) = sum_i p_i p_j / (1 -
    p_i). *Candidates* samples several and takes the likeliest: with the codes in ascending order
    and C their cumulated probabilities, P(i) = C_i^n - C_(i-1)^n.
    """

    def __init__(self, batch: BatchParams) -> None:
        rows = zip(batch.params, batch.is_on("entropix"), strict=True)
        active = [params for params, on in rows if on]
        # Whether any row may resample
        self.resamples = any(p.entropix_action == "resample" for p in active)
        most = max((p.entropix_adaptive_candidates for p in active), default=1)
        self.candidates = most - 1  # how many codes the rows sample at most beside the first
        self._number = torch.arange(1, most + 1, device=batch.device)

    def __call__(
        self,
        scores: Scores,
        sampled: SampleResult,
        noise: Noise,
        others: Sequence[Tensor] | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return the codes ``(B,)``, and the logits ``(B, V)`` that each was sampled from.

        ``others`` are the candidates beside the first, if they are sampled already.
        """
        codes = sampled.codes
        logits = sampled.logits
        decision = scores.decision
        if decision is None:
            return codes, logits
        if self.resamples:
            without = ras.fallback(logits, codes[:, None], decision.resample)
            second = categorical(without, noise.second)
            codes = torch.where(decision.resample[:, 0], second, codes)
            logits = torch.where(decision.resample, without, logits)
        if self.candidates:
            others = categorical(logits, noise.candidates).unbind() if others is None else others
            several = torch.stack([codes, *others], 1)
            unwanted = self._number > decision.candidates
            heights = logits.gather(1, several).masked_fill(unwanted, -torch.inf)
            codes = several.gather(1, greedy(heights)[:, None])[:, 0]
        return codes, logits
