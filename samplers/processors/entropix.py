"""The processor of entropix: it reads each row's entropy, and adjusts the row's knobs.

It comes after bans and penalties and before everything that truncates. It changes no logit except
to pause; temperature, top_p, top_k and min_p read the values that it adjusted, the sample its
decision.
"""

import math

import torch
from torch import Tensor

from samplers.knobs.entropix import EntropixKnobs
from samplers.knobs.features import is_on
from samplers.knobs.params import SamplingParams
from samplers.ops.entropix import (
    HOTTEST,
    KNOBS,
    Decision,
    EntropixSettings,
    State,
    adjust,
    moments,
    state,
)
from samplers.processors.processor import BatchParams, LogitsProcessor, Scores

PREFIX = "entropix_"


class Entropix(LogitsProcessor):
    """Entropix for the rows that have it on; the others keep their knobs."""

    features = ("entropix",)

    def __init__(self, batch: BatchParams) -> None:
        self._off = ~batch.column(batch.is_on("entropix"))
        self._settings = settings(batch)
        resamples = [p.entropix_action == "resample" for p in batch.params]
        self._resamples = batch.column(resamples)
        self._any_resamples = any(resamples)
        branches = batch.is_on("branch")
        self._branches = batch.column(branches)
        self._any_branches = any(branches)
        self._keeps = self._resamples | self._branches
        silences = zip(batch.is_on("pause"), batch.silent, strict=True)
        # Of rows that do not pause, none
        self._silent = batch.table([codes if pauses else () for pauses, codes in silences])
        self._never = torch.zeros_like(self._off)
        # A row that has a knob off has it at its neutral value, which changes nothing exactly.
        own = (
            batch.column([float(max(p.temperature, 0)) for p in batch.params]),
            batch.knob("top_p", math.inf),
            batch.knob("min_p", 0.0),
            batch.knob("top_k", batch.vocab_size).clamp(max=batch.vocab_size).float(),
        )
        self._own = torch.cat(own, 1)
        most = self._own.new_tensor([HOTTEST, 1.0, math.inf, math.inf])
        self._start = torch.minimum(self._own, most)

    def __call__(self, scores: Scores) -> None:
        """Set ``scores.adjusted`` and ``decision``; a row that pauses keeps only codes of silence.

        Raises ValueError if there are no attention statistics.
        """
        if scores.attention is None:
            raise ValueError("a row wants entropix: the step needs the attention statistics")
        # A row from which nothing may be sampled has no entropy; it ends whatever is decided here.
        entropy, varentropy = (moment.nan_to_num(nan=0.0) for moment in moments(scores.logits))
        states = state(entropy, varentropy, self._settings).masked_fill(self._off, State.OFF)
        moved = adjust(states, entropy, varentropy, scores.attention, self._start, self._settings)
        unsure = states == State.HELV
        paused = branched = resample = self._never
        keeps = self._off | (unsure & self._keeps)
        if self._silent is not None:
            paused = self._paused(scores, unsure, self._silent)
            keeps |= paused
        if self._any_branches:
            branched = self._may_branch(scores) & (unsure | (states == State.LEHV))
        if self._any_resamples:
            resample = self._resamples & (unsure | (states == State.HEHV))
        top_p = moved[:, KNOBS.index("top_p")]
        top_p.masked_fill_(top_p >= 1, math.inf)  # it is off
        scores.adjusted = torch.where(keeps, self._own, moved)
        candidates = torch.where(states == State.ADAPTIVE, self._settings["adaptive_candidates"], 1)
        scores.decision = Decision(states, resample, candidates, paused, branched)

    @classmethod
    def lookback(cls, params: SamplingParams) -> int:
        """Return the window in which a row that pauses counts its silence."""
        return params.entropix_pause_silence if is_on("pause", params) else 0

    def _may_branch(self, scores: Scores) -> Tensor:
        """Return ``(B, 1)`` bool: rows with frames left, and none branched too recently."""
        assert scores.limits is not None
        assert scores.last_act is not None
        frames = self._settings["branch_frames"]
        interval = torch.maximum(frames, self._settings["branch_interval"])
        rested = scores.lengths - scores.last_act >= interval
        return self._branches & rested & (scores.limits - scores.lengths >= frames)

    def _paused(self, scores: Scores, unsure: Tensor, silent: Tensor) -> Tensor:
        """Leave only ``silent`` codes in the ``unsure`` rows that pause; return which do."""
        lengths = scores.lengths
        span = self._settings["pause_silence"]
        assert scores.limits is not None
        assert scores.last_act is not None
        distance = torch.arange(1, scores.recent.shape[1] + 1, device=lengths.device)
        quiet = silent.gather(1, scores.recent.clamp(min=0)) & (scores.recent >= 0)
        silence = (quiet & (distance <= span)).sum(-1, keepdim=True)
        hushed = scores.logits.masked_fill(~silent, -torch.inf)
        paused = (
            unsure
            & (hushed > -torch.inf).any(-1, keepdim=True)
            & (lengths >= span)
            & (silence < span)
            & (lengths - scores.last_act >= self._settings["pause_interval"])
            & (scores.limits - lengths >= self._settings["pause_end"])
        )
        scores.replace(torch.where(paused, hushed, scores.logits))
        return paused


def settings(batch: BatchParams) -> EntropixSettings:
    """Return every threshold and coefficient of the rows, by its knob's name without the prefix."""
    numbers = [
        name
        for name, field in EntropixKnobs.model_fields.items()
        if field.annotation in (int, float)
    ]
    return EntropixSettings({
        name.removeprefix(PREFIX): batch.column([getattr(p, name) for p in batch.params])
        for name in numbers
    })
