"""The chain: from a model's logits to the next code, for a batch of unlike rows.

Every row has its own params, its own history and its own stream of noise. The chain knows neither
the model nor the audio, and holds all state of sampling: histories, attempts, which rows stopped.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from samplers import filters
from samplers.conflicts import CONFLICTS, ConflictError
from samplers.draw import Stage, stream_key
from samplers.entropix import AttentionStatistics
from samplers.history import History
from samplers.nar import sample_nar
from samplers.params import SamplingParams
from samplers.pipeline import Pipeline
from samplers.rows import Rows
from samplers.scores import Scores
from samplers.terminal import Drawn, Terminal
from samplers.trace import Record, Trace, consider, log_prob_of, weigh

__all__ = ["CONFLICTS", "ArSampler", "ConflictError", "sample_nar"]


class ArSampler:
    """Draws the level-0 codes of a batch of utterances, one a row at each step.

    A row that drew the stop, or that holds ``max_frames`` codes, gives the stop from then on, and
    its history no longer grows; the others do not notice.

    Attributes:
        wants_attention: Whether a row has entropix on, so that every step needs the statistics.
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
        prompts: Sequence[Tensor | None] | None = None,
        silent: Tensor | None = None,
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
            prompts: The level-0 codes ``(N,)`` int64 of each row's voice, which count where the
                row has `penalty_includes_prompt`; none by default.
            silent: ``(V,)`` bool, the codes of silence, which may stop short of the last ids: what
                entropix puts in as a pause. None: it never does.
            device: Where the logits will be.

        Raises:
            ValueError: The sequences differ in length, or the stop is outside the vocabulary.
        """
        count = len(params)
        utterances = utterances if utterances is not None else [0] * count
        candidates = candidates if candidates is not None else [0] * count
        if not count == len(seeds) == len(utterances) == len(candidates):
            raise ValueError("params, seeds, utterances and candidates must have one entry a row")
        if not 0 <= stop_token < vocab_size:
            raise ValueError(f"stop_token must be in [0, {vocab_size}), not {stop_token}")
        place = torch.device(device)
        self._stop_token, self._max_frames = stop_token, max_frames
        self._tracks_runs = any(
            p.dry_multiplier > 0 or p.no_repeat_ngram_size > 0 or p.backtrack for p in params
        )
        self._history = History(count, max_frames, place, track_runs=self._tracks_runs)
        self._prompted = [0] * count  # how many codes of a prompt each row heard
        self._heard = self._hear(params, prompts) if prompts else self._history
        longest = self._heard.codes.shape[1]
        self._lookback = max((_lookback(p, longest) for p in params), default=0)
        self._stopped = torch.zeros(count, dtype=torch.bool, device=place)
        self._attempts = torch.zeros(count, 1, dtype=torch.int64, device=place)
        streams = zip(seeds, utterances, candidates, strict=True)
        keys = [stream_key(s, u, Stage.AR, candidate=c) for s, u, c in streams]
        self._keys = torch.tensor(keys, device=place)[:, None]
        rows = Rows(params, vocab_size, stop_token, place)
        self.wants_attention = rows.any("entropix")
        self._pipeline = Pipeline(rows, silent, max_frames)
        self._terminal = Terminal(rows, max_frames)

    @property
    def history(self) -> History:
        """What was drawn, with its runs where a row has `backtrack`; to look at only."""
        return self._history

    @property
    def lengths(self) -> Tensor:
        """``(B,)`` int64: how many codes each row has drawn, the stop not counted."""
        return self._history.lengths

    @property
    def codes(self) -> Tensor:
        """``(B, max_frames)`` int64: the codes drawn; only the first `lengths` mean anything."""
        return self._history.codes

    @property
    def stopped(self) -> Tensor:
        """``(B,)`` bool: which rows have ended."""
        return self._stopped

    @torch.inference_mode()
    def step(
        self,
        logits: Tensor,
        trace: Trace | None = None,
        own: Tensor | None = None,
        attention: AttentionStatistics | None = None,
    ) -> Tensor:
        """Draw the next code of every row.

        Args:
            logits: ``(B, V)``, any float dtype, on this sampler's device; not changed.
            trace: Where to record what was seen and done; it costs a little and changes no code.
            own: ``(B, V)``, for the trace: the model's own logits, where ``logits`` are guided or
                otherwise changed.
            attention: Of the model where it gave the logits; what it says of rows that do not have
                entropix on is not looked at.

        Returns:
            ``(B,)`` int64; the stop where a row has ended.

        Raises:
            ValueError: A row has entropix on, and there are no attention statistics.
        """
        clean = filters.sanitise(logits)
        scores = self._scores(clean)
        scores.attention = attention
        weighed = self._pipeline.run(scores, tracing=trace is not None)
        drawn = self._terminal.draw(scores)
        # Only a row from which nothing may be drawn gives a code that is gone: it ends here.
        empty = drawn.logits.gather(-1, drawn.codes[:, None])[:, 0] == -torch.inf
        ended = empty | (drawn.codes == self._stop_token)
        stopped = self._stopped | ended | (self._history.lengths >= self._max_frames)
        codes = drawn.codes.masked_fill(stopped, self._stop_token)
        if trace is not None and weighed is not None:
            record = self._record(logits, clean, weighed, scores, drawn, codes, empty)
            if own is not None:
                record = replace(record, logprob=log_prob_of(filters.sanitise(own), codes))
            trace.records.append(record)
        self._stopped.copy_(stopped)
        self._history.append(codes, ~stopped)
        if self._heard is not self._history:
            self._heard.append(codes, ~stopped)
        return codes

    def _hear(self, params: Sequence[SamplingParams], prompts: Sequence[Tensor | None]) -> History:
        """Return the history that penalties count; rows that want it begin with their prompt."""
        pairs = list(zip(params, prompts, strict=True))
        heard = [prompt if p.penalty_includes_prompt else None for p, prompt in pairs]
        self._prompted = [0 if prompt is None else len(prompt) for prompt in heard]
        if not any(self._prompted):
            return self._history
        history = History(
            len(params),
            self._max_frames + max(self._prompted),
            self._history.codes.device,
            track_runs=self._tracks_runs,
        )
        for row, prompt in enumerate(heard):
            if prompt is not None:
                history.preload(row, prompt)
        return history

    def _scores(self, logits: Tensor) -> Scores:
        recent = heard = self._history.newest_first(self._lookback)
        if self._heard is not self._history:
            heard = self._heard.newest_first(self._lookback)
        return Scores(
            logits,
            self._history.lengths[:, None],
            recent,
            heard,
            self._heard.runs if self._tracks_runs else heard,
            self._keys,
            self._attempts,
        )

    def _record(
        self,
        logits: Tensor,
        clean: Tensor,
        weighed: Tensor,
        scores: Scores,
        drawn: Drawn,
        codes: Tensor,
        empty: Tensor,
    ) -> Record:
        greedy_score = torch.zeros_like(clean[:, 0])
        temperature = scores.divisor if scores.divisor is not None else scores.ones()
        score, logprob = log_prob_of(drawn.logits, codes), log_prob_of(clean, codes)
        mu = self._terminal.mu
        return Record(
            alive=~self._stopped,
            frame=self._history.lengths.clone(),
            attempt=self._attempts[:, 0].clone(),
            code=codes,
            logprob=logprob,
            guided_logprob=logprob,
            score=torch.where(temperature[:, 0] <= 0, greedy_score, score),
            **weigh(clean, weighed, self._stop_token),
            kept=(drawn.logits > -torch.inf).sum(-1),
            temperature=temperature[:, 0],
            mirostat_mu=(mu.clone() if mu is not None else scores.ones() * torch.nan)[:, 0],
            repeated=(
                drawn.repeated[:, 0] if drawn.repeated is not None else torch.zeros_like(empty)
            ),
            **consider(scores),
            saw_nan=logits.isnan().any(-1),
            saw_inf=(logits == torch.inf).any(-1),
            all_masked=empty,
        )

    @torch.inference_mode()
    def rewind(self, row: int, length: int) -> None:
        """Take back all but the first ``length`` codes of a row; it goes on with fresh noise.

        Args:
            row: Which row.
            length: How many codes to keep; no more than the row holds.
        """
        self._history.rewind(row, length)
        if self._heard is not self._history:
            self._heard.rewind(row, self._prompted[row] + length)
        self._terminal.rewind(row, length)
        self._attempts[row] += 1
        self._stopped[row] = False


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
