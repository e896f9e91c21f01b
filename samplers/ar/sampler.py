"""The chain: from a model's logits to the next code, for a batch of unlike rows that come and go.

Every row has its own params, its own history and its own stream of noise. The chain knows neither
the model nor the audio, and holds all state of sampling: histories, attempts, which rows stopped.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from samplers.ar.assembly import Assembly
from samplers.ar.history import History
from samplers.ar.state import SamplerState
from samplers.ar.step import Seen, Stepped
from samplers.ar.trace import Record, Trace
from samplers.knobs.conflicts import CONFLICTS, ConflictError
from samplers.knobs.params import SamplingParams
from samplers.nar import sample_nar
from samplers.ops import filters
from samplers.ops.beam import extend
from samplers.ops.entropix import AttentionStatistics

__all__ = ["CONFLICTS", "ArSampler", "ConflictError", "Stepped", "sample_nar"]


class ArSampler:
    """Draws the level-0 codes of a batch of utterances, one a row at each step.

    A row that drew the stop, or that holds as many codes as it may, gives the stop from then on,
    and its history no longer grows; the others do not notice. Between two steps rows may join, at
    the end, and leave, whereupon those behind move up; the others do not notice that either.
    """

    def __init__(
        self,
        params: Sequence[SamplingParams],
        seeds: Sequence[int],
        *,
        stop_token: int,
        vocab_size: int,
        max_frames: int = 0,
        utterances: Sequence[int] | None = None,
        candidates: Sequence[int] | None = None,
        prompts: Sequence[Tensor | None] | None = None,
        silent: Tensor | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        """Admit the first rows, of which there may be none.

        Args:
            params: One a row, as the next three; see `join`.
            seeds: See there.
            stop_token: The id that ends an utterance.
            vocab_size: V, the stop included.
            max_frames: How many codes each of these rows may hold.
            utterances: See `join`.
            candidates: See there.
            prompts: See there; one a row, too.
            silent: The same for all these rows.
            device: Where the logits will be.

        Raises:
            ValueError: The sequences differ in length, or the stop is outside the vocabulary.
        """
        count = len(params)
        utterances = utterances if utterances is not None else [0] * count
        candidates = candidates if candidates is not None else [0] * count
        prompts = prompts if prompts is not None else [None] * count
        if not count == len(seeds) == len(utterances) == len(candidates) == len(prompts):
            raise ValueError(
                "params, seeds, utterances, candidates and prompts must have one entry a row"
            )
        if not 0 <= stop_token < vocab_size:
            raise ValueError(f"stop_token must be in [0, {vocab_size}), not {stop_token}")
        self._stop_token, self._vocab_size = stop_token, vocab_size
        self._device = torch.device(device)
        self._rows: SamplerState | None = None
        self._chain: Assembly | None = None  # built when a step needs it
        parts = [
            SamplerState.begin(
                one, seed, max_frames=max_frames, utterance=utterance, candidate=candidate,
                prompt=prompt, silent=silent, device=self._device,
            )
            for one, seed, utterance, candidate, prompt in zip(
                params, seeds, utterances, candidates, prompts, strict=True
            )
        ]  # fmt: skip
        if parts:
            self._rows = SamplerState.join(parts)
            self._chain = self._built

    def __len__(self) -> int:
        """How many rows there are."""
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
    ) -> None:
        """Admit a row, or all beams of a search, as the last.

        Args:
            params: Resolved.
            seed: Of its noise.
            max_frames: How many codes it may hold.
            utterance: Which utterance of its text it speaks.
            candidate: Which take of its utterance it is.
            prompt: The level-0 codes ``(N,)`` int64 of its voice, which count if the row has
                `penalty_includes_prompt`.
            silent: ``(V,)`` bool, the codes of silence, which may stop short of the last ids: what
                entropix puts in as a pause. None: it never does.
        """
        self.rejoin(
            SamplerState.begin(
                params, seed, max_frames=max_frames, utterance=utterance, candidate=candidate,
                prompt=prompt, silent=silent, device=self._device,
            )
        )  # fmt: skip

    @torch.inference_mode()
    def leave(self, *rows: int) -> SamplerState:
        """Let rows go, and return what they remember, so that they may come back.

        Args:
            *rows: Which, at least one; those behind each move up by one.
        """
        gone = self._held.take(rows)
        others = [place for place in range(len(self)) if place not in rows]
        self._rows = self._held.take(others) if others else None
        self._chain = None
        return gone

    @torch.inference_mode()
    def rejoin(self, memory: SamplerState) -> None:
        """Admit rows that left, as the last, to go on as if they had not.

        Args:
            memory: From `leave`.
        """
        self._rows = SamplerState.join([self._rows, memory] if self._rows else [memory])
        self._chain = None

    @torch.inference_mode()
    def fork(self, row: int, length: int, code: int, number: int) -> None:
        """Admit a copy of a row, as the last, that drew another code in the last step.

        Args:
            row: Which row.
            length: How many codes it holds.
            code: The other one.
            number: Of the copy, from 1 on: its noise from now on depends on it.
        """
        self.rejoin(self._held.fork(row, length, code, number))

    @property
    def wants_attention(self) -> bool:
        """Whether a row has entropix on, so that every step needs the statistics."""
        return any(row.wants_attention for row in self._held.rows)

    @property
    def history(self) -> History:
        """What was drawn, with its runs where a row has `backtrack`; to look at only."""
        return self._held.history

    @property
    def lengths(self) -> Tensor:
        """``(B,)`` int64: how many codes each row has drawn, the stop not counted."""
        return self.history.lengths

    @property
    def codes(self) -> Tensor:
        """``(B, max_frames)`` int64: the codes drawn; only the first `lengths` mean anything."""
        return self.history.codes

    @property
    def stopped(self) -> Tensor:
        """``(B,)`` bool: which rows have ended."""
        return self._held.stopped

    def step(
        self,
        logits: Tensor,
        trace: Trace | None = None,
        own: Tensor | None = None,
        attention: AttentionStatistics | None = None,
    ) -> Tensor:
        """As `advance`, for who asks for the codes ``(B,)`` alone."""
        return self.advance(logits, trace, own, attention).codes

    @torch.inference_mode()
    def advance(
        self,
        logits: Tensor,
        trace: Trace | None = None,
        own: Tensor | None = None,
        attention: AttentionStatistics | None = None,
    ) -> Stepped:
        """Draw the next code of every row, and go on with the best beams of every search.

        Args:
            logits: ``(B, V)``, any float dtype, on this sampler's device; not changed. Those of a
                beam that has ended are not looked at.
            trace: Where to record what was seen and done; it costs a little and changes no code.
            own: ``(B, V)``, for the trace: the model's own logits, where ``logits`` are guided or
                otherwise changed.
            attention: Of the model where it gave the logits; what it says of rows that do not have
                entropix on is not looked at.

        Raises:
            ValueError: A row has entropix on, and there are no attention statistics.
        """
        chain, memory = self._built, self._held
        scores = chain.scores(filters.sanitise(logits), memory)
        clean, scores.attention = scores.logits, attention
        weighed = chain.pipeline.run(scores, tracing=trace is not None)
        seen = Seen(logits, clean, own, weighed, scores, chain.terminal.draw(scores))
        sources: Sequence[int] = range(len(self))
        if chain.searches:
            seen, sources = self._search(chain.searches, seen)
        drawn = seen.drawn
        # Only a row from which nothing may be drawn gives a code that is gone: it ends here.
        empty = drawn.logits.gather(-1, drawn.codes[:, None])[:, 0] == -torch.inf
        ended = empty | (drawn.codes == self._stop_token)
        stopped = memory.stopped | ended | (memory.history.lengths >= memory.limits[:, 0])
        codes = drawn.codes.masked_fill(stopped, self._stop_token)
        ways = seen.ways(stopped, self._stop_token)
        retold: Sequence[Record] = ()
        if trace is not None:
            entry = seen.record(codes, self._stop_token, alive=~memory.stopped, empty=empty)
            trace.records.append(entry)
            if ways is not None:
                retold = [seen.retell(entry, way) for way in ways[:, 1:].unbind(1)]
        memory.append(codes, stopped, seen.scores, drawn)
        return Stepped(codes, sources, memory.beam_scores.clone(), ways, retold)

    def _search(self, searches: Sequence[Sequence[int]], seen: Seen) -> tuple[Seen, Sequence[int]]:
        """Go on with the best beams: rows become what others were, with their next codes."""
        memory, logits = self._held, seen.scores.logits
        full = memory.history.lengths >= memory.limits[:, 0]
        nothing = ~(logits > -torch.inf).any(-1)
        finished = memory.stopped | full | nothing
        step = extend(searches, logits, seen.drawn.codes, memory.beam_scores, finished)
        moved = [row for row, source in enumerate(step.sources) if row != source]
        if moved:
            memory.overwrite(moved, [step.sources[row] for row in moved])
            seen = seen.take(torch.tensor(step.sources, device=self._device))
        memory.beam_scores.copy_(step.scores)
        memory.stopped.logical_or_(step.scores == -torch.inf)
        seen.drawn.codes = step.codes.masked_fill(step.codes < 0, self._stop_token)
        return seen, step.sources

    @torch.inference_mode()
    def rewind(self, row: int, length: int) -> None:
        """Take back all but the first ``length`` codes of a row; it goes on with fresh noise.

        Args:
            row: Which row.
            length: How many codes to keep; no more than the row holds.
        """
        self._held.rewind(row, length)

    @property
    def _held(self) -> SamplerState:
        assert self._rows is not None, "there is no row"
        return self._rows

    @property
    def _built(self) -> Assembly:
        if self._chain is None:
            self._chain = Assembly(self._held, self._vocab_size, self._stop_token, self._device)
        return self._chain
