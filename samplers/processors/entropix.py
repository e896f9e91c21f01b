"""The step of the chain that is entropix: it reads how unsure a row is, and moves its knobs.

It comes after bans and penalties and before everything that truncates. It changes no logit, but for
a pause; temperature, top_p, top_k and min_p read the knobs that it leaves behind, and the draw its
decision.
"""

import math
from collections.abc import Sequence
from dataclasses import fields, replace

import torch
from torch import Tensor

from samplers.knobs.entropix import EntropixKnobs
from samplers.knobs.params import SamplingParams
from samplers.ops.entropix import (
    HOTTEST,
    Decision,
    Knobs,
    Settings,
    State,
    adjust,
    moments,
    state,
)
from samplers.processors.batch_params import BatchParams, on
from samplers.processors.scores import Scores

PREFIX = "entropix_"


class EntropixStep:
    """Entropix for the rows that have it on; the others keep their knobs."""

    def __init__(self, rows: BatchParams, silent: Sequence[Tensor | None]) -> None:
        """Read the rows' params.

        Args:
            rows: The rows.
            silent: ``(V,)`` bool a row, the codes of silence, or fewer than V entries, or None.
        """
        self._active = rows.column([rows.on("entropix", p) for p in rows.params])
        self._settings = settings(rows)
        actions = [p.entropix_action for p in rows.params]
        self._resamples = rows.column([action == "resample" for action in actions])
        self._branches = rows.column([branches(p) for p in rows.params])
        self._any_branches = any(branches(p) for p in rows.params)
        # A row that has a knob off has it at its neutral value, which changes nothing exactly.
        self._own = Knobs(
            rows.column([float(max(p.temperature, 0)) for p in rows.params]),
            rows.knob("top_p", math.inf),
            rows.knob("top_k", rows.vocab_size).clamp(max=rows.vocab_size),
            rows.knob("min_p", 0.0),
        )
        self._start = replace(
            self._own,
            temperature=self._own.temperature.clamp(max=HOTTEST),
            top_p=self._own.top_p.clamp(max=1),
        )
        pausing = rows.flags([
            pauses(p) and quiet is not None for p, quiet in zip(rows.params, silent, strict=True)
        ])
        self._pauses = None
        if pausing is not None:
            self._pauses = Pauses(pausing, self._settings, silent, rows)

    def __call__(self, scores: Scores) -> None:
        """Decide.

        Args:
            scores: With the attention statistics; gets knobs, decision and, in a row that pauses,
                nothing but silence.

        Raises:
            ValueError: There are no attention statistics.
        """
        if scores.attention is None:
            raise ValueError("a row wants entropix: the step needs the attention statistics")
        # A row from which nothing may be drawn has no entropy; it ends whatever is decided here.
        entropy, varentropy = (moment.nan_to_num(nan=0.0) for moment in moments(scores.logits))
        states = state(entropy, varentropy, self._settings).masked_fill(~self._active, State.OFF)
        moved = adjust(states, entropy, varentropy, scores.attention, self._start, self._settings)
        unsure = states == State.HELV
        paused = branched = torch.zeros_like(unsure)
        if self._pauses:
            paused = self._pauses.decide(scores, unsure)
        if self._any_branches:
            branched = self._may_branch(scores) & (unsure | (states == State.LEHV))
        keeps = ~self._active | paused | (unsure & (self._resamples | self._branches))
        scores.knobs = _neutral_top_p(moved, self._own, keeps)
        scores.decision = Decision(
            states,
            self._resamples & (unsure | (states == State.HEHV)),
            torch.where(states == State.ADAPTIVE, self._settings["adaptive_candidates"], 1),
            paused,
            branched,
        )

    def _may_branch(self, scores: Scores) -> Tensor:
        """Return ``(B, 1)`` bool, where ways to go on have room and the last are long decided."""
        assert scores.limits is not None
        assert scores.last_act is not None
        frames = self._settings["branch_frames"]
        interval = torch.maximum(frames, self._settings["branch_interval"])
        rested = scores.lengths - scores.last_act >= interval
        return self._branches & rested & (scores.limits - scores.lengths >= frames)


def settings(rows: BatchParams) -> Settings:
    """Every threshold and coefficient of the rows, by its knob's name without the prefix."""
    numbers = [
        name
        for name, field in EntropixKnobs.model_fields.items()
        if field.annotation in (int, float)
    ]
    return {
        name.removeprefix(PREFIX): rows.column([getattr(p, name) for p in rows.params])
        for name in numbers
    }


def _neutral_top_p(moved: Knobs, own: Knobs, keeps: Tensor) -> Knobs:
    """The rows' own knobs where ``keeps``, else the moved ones; a top_p of 1 keeps all codes."""
    everything = replace(moved, top_p=moved.top_p.masked_fill(moved.top_p >= 1, math.inf))
    return Knobs(
        *(
            torch.where(keeps, getattr(own, field.name), getattr(everything, field.name))
            for field in fields(Knobs)
        )
    )


def pauses(params: SamplingParams) -> bool:
    """Whether entropix may put in silence for a row with these params."""
    return on("entropix", params) and params.entropix_action == "pause"


def branches(params: SamplingParams) -> bool:
    """Whether entropix may go on in several ways in a row with these params."""
    return on("entropix", params) and on("branch", params)


class Pauses:
    """Where a frame of silence may be put in."""

    def __init__(
        self,
        pausing: Tensor,
        settings: Settings,
        silent: Sequence[Tensor | None],
        rows: BatchParams,
    ) -> None:
        self._pausing, self._settings = pausing, settings
        table = torch.zeros(len(silent), rows.vocab_size, dtype=torch.bool, device=rows.device)
        for row, codes in enumerate(silent):
            if codes is not None:
                table[row, : len(codes)] = codes.to(rows.device)
        self._silent = table

    def decide(self, scores: Scores, unsure: Tensor) -> Tensor:
        """Leave nothing but silence in the rows that pause.

        Args:
            scores: With limits and last acts; gets other logits.
            unsure: ``(B, 1)`` bool, rows that would.

        Returns:
            ``(B, 1)`` bool, those that do.
        """
        lengths, span = scores.lengths, self._settings["pause_silence"]
        assert scores.limits is not None
        assert scores.last_act is not None
        distance = torch.arange(1, scores.recent.shape[1] + 1, device=lengths.device)
        quiet = self._silent.gather(1, scores.recent.clamp(min=0)) & (scores.recent >= 0)
        silence = (quiet & (distance <= span)).sum(-1, keepdim=True)
        hushed = scores.logits.masked_fill(~self._silent, -torch.inf)
        paused = (
            self._pausing
            & unsure
            & (hushed > -torch.inf).any(-1, keepdim=True)
            & (lengths >= span)
            & (silence < span)
            & (lengths - scores.last_act >= self._settings["pause_interval"])
            & (scores.limits - lengths >= self._settings["pause_end"])
        )
        scores.replace(torch.where(paused, hushed, scores.logits))
        return paused
