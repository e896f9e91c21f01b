"""The sampler of level 0: from a model's logits to the next code, for a batch of unlike rows.

Every row has params, a history and a random stream of its own. The sampler knows neither the model
nor the audio, and holds all state of sampling: histories, attempts, which rows stopped.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from samplers.ar.history import History
from samplers.ar.pipeline import Pipeline
from samplers.ar.state import DrawnCodes, SamplerState
from samplers.ar.step import StepResult, StepTensors
from samplers.ar.trace import Record, Trace
from samplers.knobs.params import SamplingParams
from samplers.ops import filters
from samplers.ops.beam import extend
from samplers.ops.entropix import AttentionStatistics


class ArSampler:
    """Draws the level-0 codes of a batch of utterances, one a row at each step.

    A row that drew the stop, or that holds as many codes as it may, gives the stop from then on,
    and its history no longer grows. Between two steps rows may join, at the end, and leave,
    whereupon those behind move up. No row's codes depend on the other rows.
    """

    def __init__(
        self, *, stop_token: int, vocab_size: int, device: torch.device | str = "cpu"
    ) -> None:
        """Create a sampler without rows.

        Args:
            stop_token: The id that ends an utterance.
            vocab_size: V, the stop included.
            device: Where the logits will be.

        Raises:
            ValueError: The stop is outside the vocabulary.
        """
        if not 0 <= stop_token < vocab_size:
            raise ValueError(f"stop_token must be in [0, {vocab_size}), not {stop_token}")
        self._stop_token, self._vocab_size = stop_token, vocab_size
        self._device = torch.device(device)
        self._rows: SamplerState | None = None
        self._built: Pipeline | None = None  # when a step needs it

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self._rows.rows) if self._rows else 0

    @torch.inference_mode()
    def join(
        self,
        params: SamplingParams,
        seed: int,
        *,
        max_frames: int,
        utterance: int = 0,
        candidate: int = 0,
        prompt: Tensor | None = None,
        silent: Tensor | None = None,
        drawn: DrawnCodes | None = None,
    ) -> None:
        """Add a row, or all beams of a search, at the end.

        Args:
            params: Resolved.
            seed: Seed of its random stream.
            max_frames: How many codes it may hold.
            utterance: Index of the utterance in its text; part of the stream's name.
            candidate: Which of several hypotheses of the utterance it is; part of the stream's
                name.
            prompt: The level-0 codes ``(N,)`` int64 of its voice, counted by penalties under
                `penalty_includes_prompt`.
            silent: ``(<= V,)`` bool, the codes of silence, which entropix pauses with. None: it
                never pauses.
            drawn: Codes that the row holds already; None: none.
        """
        self.rejoin(
            SamplerState.begin(
                params, seed, max_frames=max_frames, utterance=utterance, candidate=candidate,
                prompt=prompt, silent=silent, device=self._device, drawn=drawn,
            )
        )  # fmt: skip

    @torch.inference_mode()
    def leave(self, *rows: int) -> SamplerState:
        """Remove rows.

        Args:
            *rows: Which, at least one; those behind each move up by one.

        Returns:
            A copy of their state, for `rejoin`.
        """
        gone = self._state.take(rows)
        others = [place for place in range(len(self)) if place not in rows]
        self._rows = self._state.take(others) if others else None
        self._built = None
        return gone

    @torch.inference_mode()
    def rejoin(self, state: SamplerState) -> None:
        """Add rows that left at the end; they go on as if they had not left.

        Args:
            state: From `leave`.
        """
        self._rows = SamplerState.join([self._rows, state] if self._rows else [state])
        self._built = None

    @torch.inference_mode()
    def fork(self, row: int, length: int, code: int, number: int) -> None:
        """Add a copy of a row, at the end, with another code in place of its last.

        Args:
            row: Which row.
            length: How many codes it holds.
            code: The other code.
            number: Number of the copy, from 1 on: names its random stream from here.
        """
        self.rejoin(self._state.fork(row, length, code, number))

    @property
    def wants_attention(self) -> bool:
        """Whether a row has entropix on, so that every step needs the statistics."""
        return any(row.wants_attention for row in self._state.rows)

    @property
    def history(self) -> History:
        """The codes drawn; read only."""
        return self._state.history

    @property
    def lengths(self) -> Tensor:
        """``(B,)`` int64: how many codes each row has drawn, the stop not counted."""
        return self.history.lengths

    @property
    def codes(self) -> Tensor:
        """``(B, max_frames)`` int64: the codes drawn; valid are the first `lengths` of a row."""
        return self.history.codes

    @property
    def stopped(self) -> Tensor:
        """``(B,)`` bool: which rows have ended."""
        return self._state.stopped

    def step(
        self,
        logits: Tensor,
        trace: Trace | None = None,
        own: Tensor | None = None,
        attention: AttentionStatistics | None = None,
    ) -> Tensor:
        """Draw the next code of every row; as `advance`, but returns the codes ``(B,)`` alone."""
        return self.advance(logits, trace, own, attention).codes

    @torch.inference_mode()
    def advance(
        self,
        logits: Tensor,
        trace: Trace | None = None,
        own: Tensor | None = None,
        attention: AttentionStatistics | None = None,
    ) -> StepResult:
        """Draw the next code of every row, and extend the beams of every search.

        Args:
            logits: ``(B, V)``, any float dtype, on this sampler's device; not changed. Unused in
                rows of beams that have ended.
            trace: Where to record the step; changes no code.
            own: ``(B, V)``, for the trace: the model's own logits, where ``logits`` are guided or
                otherwise changed.
            attention: Statistics of the model's attention; unused in rows without entropix.

        Raises:
            ValueError: A row has entropix on, and there are no attention statistics.
        """
        pipeline, state = self._pipeline, self._state
        scores = pipeline.scores(filters.sanitise(logits), state)
        clean, scores.attention = scores.logits, attention
        penalised = pipeline.run(scores, tracing=trace is not None)
        drawn = pipeline.drawer.draw(scores)
        tensors = StepTensors(logits, clean, own, penalised, scores, drawn)
        sources: Sequence[int] = range(len(self))
        if pipeline.searches:
            tensors, sources = self._search(pipeline.searches, tensors)
        drawn = tensors.drawn
        empty = drawn.empty
        ended = empty | (drawn.codes == self._stop_token)
        stopped = state.stopped | ended | (state.history.lengths >= state.limits[:, 0])
        codes = drawn.codes.masked_fill(stopped, self._stop_token)
        alternatives = tensors.alternatives(stopped, self._stop_token)
        records: Sequence[Record] = ()
        if trace is not None:
            entry = tensors.record(codes, self._stop_token, alive=~state.stopped, empty=empty)
            trace.records.append(entry)
            if alternatives is not None:
                others = alternatives[:, 1:].unbind(1)
                records = [tensors.rescored(entry, column) for column in others]
        state.append(codes, stopped, tensors.scores, drawn)
        return StepResult(codes, sources, state.beam_scores.clone(), alternatives, records)

    def _search(
        self, searches: Sequence[Sequence[int]], tensors: StepTensors
    ) -> tuple[StepTensors, Sequence[int]]:
        """Extend the beams of every search; a row may become the continuation of another."""
        state, logits = self._state, tensors.scores.logits
        full = state.history.lengths >= state.limits[:, 0]
        nothing = ~(logits > -torch.inf).any(-1)
        finished = state.stopped | full | nothing
        step = extend(searches, logits, tensors.drawn.codes, state.beam_scores, finished)
        moved = [row for row, source in enumerate(step.sources) if row != source]
        if moved:
            state.overwrite(moved, [step.sources[row] for row in moved])
            tensors = tensors.take(torch.tensor(step.sources, device=self._device))
        state.beam_scores.copy_(step.scores)
        state.stopped.logical_or_(step.scores == -torch.inf)
        tensors.drawn.codes = step.codes.masked_fill(step.codes < 0, self._stop_token)
        return tensors, step.sources

    @torch.inference_mode()
    def rewind(self, row: int, length: int) -> None:
        """Remove all but the first ``length`` codes of a row; it goes on with fresh noise.

        Args:
            row: Which row.
            length: How many codes to keep; no more than the row holds.
        """
        self._state.rewind(row, length)

    @property
    def _state(self) -> SamplerState:
        assert self._rows is not None, "there is no row"
        return self._rows

    @property
    def _pipeline(self) -> Pipeline:
        if self._built is None:
            self._built = Pipeline.of(self._state, self._vocab_size, self._stop_token, self._device)
        return self._built
