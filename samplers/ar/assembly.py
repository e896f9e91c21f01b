"""The steps of the chain put together for the rows of a batch, as long as they stay the same."""

import torch
from torch import Tensor

from samplers.ar.pipeline import Pipeline
from samplers.ar.state import Row, SamplerState
from samplers.knobs.params import SamplingParams
from samplers.processors.batch_params import BatchParams
from samplers.processors.draw import Terminal
from samplers.processors.scores import Scores


class Assembly:
    """The steps for certain rows, which remember nothing.

    Attributes:
        searches: The rows of each beam search.
        pipeline: From the model's scores to those that are drawn from.
        terminal: From those to codes.
    """

    def __init__(
        self, memory: SamplerState, vocab_size: int, stop_token: int, device: torch.device
    ) -> None:
        """Read what the rows want.

        Args:
            memory: With the rows.
            vocab_size: V.
            stop_token: The id that ends an utterance.
            device: Where the logits will be.
        """
        params = [row.params for row in memory.rows]
        rows = BatchParams(params, vocab_size, stop_token, device)
        self.pipeline = Pipeline(rows, [row.silent for row in memory.rows])
        self.terminal = Terminal(rows)
        beams: dict[Row, list[int]] = {}
        for place, row in enumerate(memory.rows):
            if row.params.beam_width:
                beams.setdefault(row, []).append(place)
        self.searches = list(beams.values())
        self._lookback = max(_lookback(p, memory.longest_heard) for p in params)
        self._acts = any(row.acts for row in memory.rows)
        asks = any(row.wants_attention or row.tracks_runs for row in memory.rows)
        self._stays = not self.searches and not asks

    def steady(self, memory: SamplerState) -> bool:
        """Whether a step has the shapes of the step before, and asks neither host nor device.

        Args:
            memory: Of the rows.
        """
        return self._stays and all(
            history.longest >= self._lookback for history in memory.histories
        )

    def scores(self, logits: Tensor, memory: SamplerState) -> Scores:
        """Return ``(B, V)`` float32 logits with all that the steps read of the rows."""
        scores = memory.scores(logits, self._lookback)
        if self.terminal.wants_mu:
            scores.mu = memory.mu.gather(1, scores.lengths)
        if self._acts:
            scores.last_act = memory.last_act.gather(1, scores.lengths)
        return scores


def _lookback(params: SamplingParams, max_frames: int) -> int:
    """How much of the history the steps of a row read."""
    windows = [len(sequence.codes) - 1 for sequence in params.ban_sequences]
    if params.dry_multiplier > 0 or params.no_repeat_ngram_size > 0:
        windows.append(max_frames)
    counting = (params.frequency_penalty, params.presence_penalty, params.repetition_penalty - 1)
    if any(counting):
        windows.append(params.repetition_penalty_window or max_frames)
    if params.ras:
        windows.append(params.ras_window)
    if params.entropix and params.entropix_action == "pause":
        windows.append(params.entropix_pause_silence)
    return min(max(windows, default=0), max_frames)
