"""Processors that change the odds of codes sampled before, and of the stop."""

import math

import torch

from samplers.knobs.params import SamplingParams
from samplers.ops import penalties, repeats
from samplers.ops.rows import ALL
from samplers.processors.processor import BatchParams, Penalty, Scores


class RepetitionPenalty(Penalty):
    """Lowers codes by their occurrences and distances in the history."""

    features = ("repetition_penalty",)

    def __init__(self, batch: BatchParams) -> None:
        params = batch.params
        self._vocab_size = batch.vocab_size
        self._factor = batch.column([math.log(p.repetition_penalty) for p in params])
        self._decay = batch.column([p.repetition_penalty_decay for p in params])
        self._window = batch.column([p.repetition_penalty_window or ALL for p in params])
        self._clamp = batch.column([p.repetition_penalty_clamp for p in params])
        modes = [penalties.MODES.index(p.repetition_penalty_mode) for p in params]
        self._mode = batch.column(modes)
        self._one_time = batch.flags([p.repetition_penalty_one_time for p in params])

    def __call__(self, scores: Scores) -> None:
        """Apply the penalties."""
        each = penalties.nats_by_distance(
            scores.counted.shape[1], log_factor=self._factor, decay=self._decay,
            window=self._window, clamp=self._clamp, mode=self._mode,
        )  # fmt: skip
        nats = penalties.summed_nats(scores.counted, self._vocab_size, each, self._one_time)
        scores.replace(penalties.apply_penalty(scores.logits, nats, self._mode))

    @classmethod
    def lookback(cls, params: SamplingParams) -> int:
        """Return the window of the penalties."""
        return params.repetition_penalty_window or ALL


class FrequencyPresencePenalty(Penalty):
    """Lowers codes by how often they occur, and by whether they do."""

    features = ("frequency_penalty", "presence_penalty")

    def __init__(self, batch: BatchParams) -> None:
        self._vocab_size = batch.vocab_size
        self._frequency = batch.knob("frequency_penalty", 0.0)
        self._presence = batch.knob("presence_penalty", 0.0)
        self._window = batch.column([p.repetition_penalty_window or ALL for p in batch.params])

    def __call__(self, scores: Scores) -> None:
        """Apply both penalties."""
        counts = penalties.occurrences(scores.counted, self._vocab_size, self._window)
        scores.replace(
            penalties.frequency_presence(scores.logits, counts, self._frequency, self._presence)
        )

    @classmethod
    def lookback(cls, params: SamplingParams) -> int:
        """Return the window of the penalties."""
        return params.repetition_penalty_window or ALL


class Dry(Penalty):
    """DRY: lowers codes that would prolong a repeated sequence."""

    features = ("dry_multiplier",)
    reads_runs = True

    def __init__(self, batch: BatchParams) -> None:
        params = batch.params
        self._multiplier = batch.knob("dry_multiplier", 0.0)
        self._base = batch.column([p.dry_base for p in params], torch.float64)
        self._allowed = batch.column([p.dry_allowed_length for p in params])
        self._span = batch.column([p.dry_range or ALL for p in params])
        self._breakers = batch.table([p.dry_sequence_breakers for p in params])

    def __call__(self, scores: Scores) -> None:
        """Apply the penalty."""
        scores.replace(
            repeats.dry(
                scores.logits, scores.counted, scores.runs, multiplier=self._multiplier,
                base=self._base, allowed_length=self._allowed, span=self._span,
                breakers=self._breakers,
            )
        )  # fmt: skip


class NoRepeatNgram(Penalty):
    """Forbids codes that would complete a sequence a second time."""

    features = ("no_repeat_ngram_size",)
    reads_runs = True

    def __init__(self, batch: BatchParams) -> None:
        self._size = batch.knob("no_repeat_ngram_size", 0)

    def __call__(self, scores: Scores) -> None:
        """Forbid those codes."""
        scores.replace(
            repeats.no_repeat_ngram(scores.logits, scores.counted, scores.runs, self._size)
        )


class LengthPenalty(Penalty):
    """Changes the odds of the stop by a power of the length."""

    features = ("length_penalty",)

    def __init__(self, batch: BatchParams) -> None:
        self._stop_token = batch.stop_token
        self._power = batch.knob("length_penalty", 0.0)
        modes = [penalties.MODES.index(p.length_penalty_mode) for p in batch.params]
        self._mode = batch.column(modes)

    def __call__(self, scores: Scores) -> None:
        """Apply the penalty."""
        scores.replace(
            penalties.length_penalty(
                scores.logits, scores.lengths, self._power, self._mode, self._stop_token
            )
        )


class ExponentialDecay(Penalty):
    """Raises the stop's logit with each frame past a length."""

    features = ("exponential_decay_factor",)

    def __init__(self, batch: BatchParams) -> None:
        self._stop_token = batch.stop_token
        self._factor = batch.knob("exponential_decay_factor", 1.0)
        self._start = batch.column([p.exponential_decay_start for p in batch.params])

    def __call__(self, scores: Scores) -> None:
        """Raise the stop."""
        scores.replace(
            penalties.exponential_decay(
                scores.logits, scores.lengths, self._factor, self._start, self._stop_token
            )
        )
