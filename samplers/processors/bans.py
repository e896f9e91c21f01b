"""Processors that come first, whatever the order: bias, bans and the minimum length."""

import math

import torch

from samplers.knobs.params import SamplingParams
from samplers.ops import penalties, repeats
from samplers.ops.rows import within
from samplers.processors.processor import BatchParams, Penalty, Scores


class LogitBias(Penalty):
    """Adds `logit_bias`, and forbids `ban_tokens`."""

    features = ("logit_bias", "ban_tokens")

    def __init__(self, batch: BatchParams) -> None:
        bias = torch.zeros(len(batch.params), batch.vocab_size)
        for row, params in enumerate(batch.params):
            for token, value in params.logit_bias.items():
                if 0 <= token < batch.vocab_size:
                    bias[row, token] = within(value)
            banned = [token for token in params.ban_tokens if 0 <= token < batch.vocab_size]
            bias[row, banned] = -math.inf
        self._bias = bias.to(batch.device)

    def __call__(self, scores: Scores) -> None:
        """Add the bias."""
        scores.replace(scores.logits + self._bias)


class SequenceBan(Penalty):
    """Lowers or forbids the code that would complete one of `ban_sequences`."""

    features = ("ban_sequences",)

    def __init__(self, batch: BatchParams) -> None:
        legal = [
            [s for s in params.ban_sequences if all(0 <= c < batch.vocab_size for c in s.codes)]
            for params in batch.params
        ]
        count = max(len(sequences) for sequences in legal)
        width = max((len(s.codes) for sequences in legal for s in sequences), default=1) - 1
        prefixes = torch.full((len(legal), count, width), -2, dtype=torch.int64)
        last = torch.zeros(len(legal), count, dtype=torch.int64)
        strength = torch.zeros(len(legal), count)
        for row, sequences in enumerate(legal):
            for place, sequence in enumerate(sequences):
                *before, last[row, place] = sequence.codes
                prefixes[row, place, : len(before)] = torch.tensor(before[::-1], dtype=torch.int64)
                strength[row, place] = within(sequence.strength)
        self._tables = [table.to(batch.device) for table in (prefixes, last, strength)]

    def __call__(self, scores: Scores) -> None:
        """Lower the last codes of the sequences that are complete but for them."""
        scores.replace(repeats.ban_sequences(scores.logits, scores.recent, *self._tables))

    @classmethod
    def lookback(cls, params: SamplingParams) -> int:
        """Return the length of the longest sequence without its last code."""
        return max(len(sequence.codes) - 1 for sequence in params.ban_sequences)


class MinFrames(Penalty):
    """Forbids the stop before `min_frames`."""

    features = ("min_frames",)

    def __init__(self, batch: BatchParams) -> None:
        self._stop_token = batch.stop_token
        self._least = batch.column([p.min_frames for p in batch.params])

    def __call__(self, scores: Scores) -> None:
        """Forbid the stop in rows that are too short."""
        scores.replace(
            penalties.hold_stop(scores.logits, scores.lengths, self._least, self._stop_token)
        )
