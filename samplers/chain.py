"""The chain: from a model's logits to the next code, for a batch of unlike rows.

Every row has its own params, its own history and its own stream of noise. The chain knows neither
the model nor the audio, and holds all state of sampling: histories, attempts, which rows stopped.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from samplers import filters, steps
from samplers.draw import Stage, categorical, greedy, stream_key, uniform
from samplers.history import History
from samplers.nar import sample_nar
from samplers.params import SamplingParams

__all__ = ["ArSampler", "sample_nar"]

CANONICAL = tuple(steps.MOVABLE)


class ArSampler:
    """Draws the level-0 codes of a batch of utterances, one a row at each step.

    A row that drew the stop, or that holds ``max_frames`` codes, gives the stop from then on, and
    its history no longer grows; the others do not notice.
    """

    def __init__(
        self,
        params: Sequence[SamplingParams],
        seeds: Sequence[int],
        *,
        stop_token: int,
        vocab_size: int,
        max_frames: int,
        utterances: Sequence[int] | None = None,
        candidates: Sequence[int] | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        """Admit the rows.

        Args:
            params: Resolved params, one a row.
            seeds: One a row.
            stop_token: The id that ends an utterance.
            vocab_size: V, the stop included.
            max_frames: The longest history of any row.
            utterances: Which utterance of its text each row speaks; 0 by default.
            candidates: Which take of its utterance each row is; 0 by default.
            device: Where the logits will be.

        Raises:
            ValueError: The sequences differ in length, or the stop is outside the vocabulary.
        """
        rows = len(params)
        utterances = utterances if utterances is not None else [0] * rows
        candidates = candidates if candidates is not None else [0] * rows
        if not rows == len(seeds) == len(utterances) == len(candidates):
            raise ValueError("params, seeds, utterances and candidates must have one entry a row")
        if not 0 <= stop_token < vocab_size:
            raise ValueError(f"stop_token must be in [0, {vocab_size}), not {stop_token}")
        self._device = torch.device(device)
        self._stop_token = stop_token
        self._max_frames = max_frames
        self._history = History(rows, max_frames, self._device)
        self._stopped = torch.zeros(rows, dtype=torch.bool, device=self._device)
        self._attempts = torch.zeros(rows, 1, dtype=torch.int64, device=self._device)
        streams = zip(seeds, utterances, candidates, strict=True)
        keys = [stream_key(s, u, Stage.AR, candidate=c) for s, u, c in streams]
        self._keys = torch.tensor(keys, device=self._device)[:, None]
        self._admit(params, vocab_size)

    def _admit(self, params: Sequence[SamplingParams], vocab_size: int) -> None:
        rows = steps.Rows(params, vocab_size, self._stop_token, self._device)
        builders = (*steps.FIXED, *(steps.MOVABLE[name] for name in CANONICAL))
        self._steps = [step for build in builders if (step := build(rows)) is not None]
        greedy_rows = rows.on("greedy")
        self._greedy = rows.column(greedy_rows)[:, 0]
        self._any_greedy, self._all_greedy = any(greedy_rows), all(greedy_rows)
        windows = [p.repetition_penalty_window or self._max_frames for p in params]
        used = zip(windows, rows.on("repetition_penalty"), strict=True)
        self._lookback = max(window if on else 0 for window, on in used)

    @property
    def lengths(self) -> Tensor:
        """``(B,)`` int64: how many codes each row has drawn, the stop not counted."""
        return self._history.lengths

    @property
    def codes(self) -> Tensor:
        """``(B, max_frames)`` int64: the codes drawn; only the first `lengths` mean anything."""
        return self._history.codes

    @torch.inference_mode()
    def step(self, logits: Tensor) -> Tensor:
        """Draw the next code of every row.

        Args:
            logits: ``(B, V)``, any float dtype, on this sampler's device; not changed.

        Returns:
            ``(B,)`` int64; the stop where a row has ended.
        """
        lengths = self._history.lengths[:, None]
        recent = self._history.newest_first(self._lookback)

        def noise(draw: int, width: int) -> Tensor:
            return uniform(self._keys, width, step=lengths, attempt=self._attempts, draw=draw)

        scores = steps.Scores(filters.sanitise(logits), lengths, recent, noise)
        for step in self._steps:
            step(scores)
        codes = self._draw(scores)
        self._stopped |= scores.best[:, 0] == -torch.inf  # nothing may be drawn: end here
        self._stopped |= (codes == self._stop_token) | (lengths[:, 0] >= self._max_frames)
        self._history.append(codes, ~self._stopped)
        return codes.masked_fill(self._stopped, self._stop_token)

    def _draw(self, scores: steps.Scores) -> Tensor:
        if self._all_greedy:
            return greedy(scores.logits)
        codes = categorical(scores.logits, scores.noise(0, scores.logits.shape[-1]))
        if self._any_greedy:
            codes = torch.where(self._greedy, greedy(scores.logits), codes)
        return codes

    def rewind(self, row: int, length: int) -> None:
        """Take back all but the first ``length`` codes of a row; it goes on with fresh noise.

        Args:
            row: Which row.
            length: How many codes to keep, at most what the row holds.
        """
        self._history.rewind(row, length)
        self._attempts[row] += 1
        self._stopped[row] = False
