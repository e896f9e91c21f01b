"""The sampler of level 0: from a model's logits to the next code, for a batch of unlike rows.

Every row has params, a history and a random stream of its own. The sampler knows neither the model
nor the audio, and holds all state of sampling: histories, attempts, which rows stopped.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from samplers.ar.batch_view import BatchView
from samplers.ar.effects import SAMPLING, Effects
from samplers.ar.state import Avoided, HostColumn, RowInput, SlotTable
from samplers.ar.trace import StepTensors, Trace, TraceStep
from samplers.ops.beam import extend
from samplers.ops.rows import sanitise
from samplers.ops.sample import Stage, forked_keys, stream_key

_BUILT = 16
"""Sets of rows whose processors are kept: rows that pause come back."""


@dataclass(frozen=True)
class StepResult:
    """The result of a step."""

    codes: Tensor  # ``(B,)`` int64; the stop where a row has ended
    sources: Sequence[int]  # the row that each row continues: itself, unless it is a beam
    # ``(B,)`` float32 nats, the scores of beams; None if no row is one.
    scores: Tensor | None = None
    # ``(B, n)`` int64: where a row branches the code and the others to go on with, else -1. None
    # if no row may branch.
    alternatives: Tensor | None = None
    # With a trace: its record with each column of those others.
    alternative_records: Sequence[TraceStep] = ()


class ArSampler:
    """Samples the level-0 codes of a batch of utterances, one a row at each step.

    Each row has a slot of a table from its `join` to its `leave`. A step samples all of them, or
    those it is asked for, in the order of their slots. A row that drew the stop, or that holds as
    many codes as it may, gives the stop from then on, and its history no longer grows. No row's
    codes depend on the other rows.

    Attributes:
        vocab_size: V, the stop included.
    """

    def __init__(self, table: SlotTable, *, stop_token: int) -> None:
        vocab_size = table.avoid.shape[1]
        if not 0 <= stop_token < vocab_size:
            raise ValueError(f"stop_token must be in [0, {vocab_size}), not {stop_token}")
        self.table = table
        self._stop_token = stop_token
        self.vocab_size = vocab_size
        self._rows: dict[int, RowInput] = {}
        self._built: dict[tuple[int, ...], BatchView] = {}

    @property
    def active(self) -> Sequence[int]:
        """The slots that have a row, in their order."""
        return sorted(self._rows)

    @torch.inference_mode()
    def join(self, slots: Sequence[int], row: RowInput) -> None:
        """Begin a row, or a search with a beam a slot; what the slots held is forgotten."""
        key = stream_key(row.seed, row.utterance, Stage.AR, candidate=row.candidate)
        for number, slot in enumerate(slots):
            self.leave(slot)
            self.table.begin(slot, row, key)
            if number:  # a search begins with one beam
                self.table.beam_scores[slot] = -torch.inf
                self.table.stopped[slot] = True
            self._rows[slot] = row

    def adopt(self, slot: int, row: RowInput) -> None:
        """Sample a row whose state is in the table already."""
        self._rows[slot] = row

    def leave(self, slot: int) -> None:
        """End a row, if the slot has one."""
        if self._rows.pop(slot, None) is not None:
            self.table.lengths[slot] = self.table.held[slot] = 0
            self._built = {slots: rows for slots, rows in self._built.items() if slot not in slots}

    @torch.inference_mode()
    def rewind(self, slot: int, length: int, avoided: Avoided | None = None) -> None:
        """Keep the first ``length`` codes of a row, which goes on with fresh noise; see `avoid`."""
        self.table.rewind(slot, self._rows[slot], length)
        if avoided is not None:
            self.avoid(slot, avoided)

    @torch.inference_mode()
    def change(self, slot: int, row: RowInput, length: int, avoided: Avoided | None = None) -> None:
        """Have a row go on as another one behind its first codes, with the noise it would have."""
        self._rows[slot] = row
        self._built = {slots: rows for slots, rows in self._built.items() if slot not in slots}
        self.table.change(slot, row, length)
        if avoided is not None:
            self.avoid(slot, avoided)

    @torch.inference_mode()
    def avoid(self, slot: int, avoided: Avoided) -> None:
        """Have the logits of a row's next frames changed."""
        self.table.avoid[slot] = avoided.nats.to(self.table.avoid.device, non_blocking=True)
        numbers = self.table.host[slot]
        numbers[HostColumn.AVOID_UNTIL] = avoided.until
        numbers[HostColumn.UNGUIDED_UNTIL] = avoided.until if avoided.unguided else 0

    @torch.inference_mode()
    def fork(self, source: int, target: int, length: int, code: int, number: int) -> None:
        """Begin a copy of a row of ``length`` codes, with another one in place of its last.

        ``number``, from 1 on, names the random stream of the copy from here.
        """
        self.leave(target)
        row = self._rows[target] = self._rows[source]
        key = int(forked_keys(torch.tensor([[self.table.host[source, HostColumn.KEY]]]), number))
        self.table.copy([source], [target], [row])
        self.table.fork(target, row, code, length, key)

    def memory(self, slot: int, length: int) -> tuple[Tensor, Tensor] | None:
        """Return mirostat's state and entropix's last act at each length up to ``length``.

        Each ``(length + 1,)``, on the host; None for a row that has neither, or that has left.
        """
        row = self._rows.get(slot)
        if row is None or not (row.params.mirostat_mode or row.acts):
            return None
        tables = (self.table.mu, self.table.last_act)
        mu, last_act = (one[slot, : length + 1].clone().cpu() for one in tables)
        return mu, last_act

    def step(
        self,
        logits: Tensor,
        trace: Trace | None = None,
        null: Tensor | None = None,
        attention: Tensor | None = None,
    ) -> Tensor:
        """Sample the next code of every row; as `advance`, but returns the codes ``(B,)`` alone."""
        return self.advance(logits, trace, null, attention).codes

    @torch.inference_mode()
    def advance(
        self,
        own: Tensor,
        trace: Trace | None = None,
        null: Tensor | None = None,
        attention: Tensor | None = None,
        slots: Sequence[int] | None = None,
        known_codes: Tensor | None = None,
    ) -> StepResult:
        """Sample the next code of B rows, and extend the beams of every search.

        Args:
            own: ``(B, V)``, any float dtype, the model's logits; not changed.
            trace: Where to record the step; changes no code.
            null: ``(G, V)``: the logits without the text of the rows that are guided.
            attention: ``(B, 4)`` float32 of `samplers.ops.entropix.ATTENTION`, if a row needs them.
            slots: Of the rows, in order; None: all. A row that is left out samples on as if each
                step had had it.
            known_codes: ``(B,)`` int64: the codes of rows that are sampled already, -1 of others.
        """
        rows = self._batch_views(tuple(self.active if slots is None else slots))
        rows.load()
        logits = rows.guidance.guide(own, null)
        if self.table.avoids(rows.slots):
            logits = rows.avoid(own, logits)
        scores = rows.scores(sanitise(logits))
        clean = scores.logits
        scores.attention = attention
        effects = Effects(len(rows.slots)) if trace is not None and trace.top else None
        penalised = rows.pipeline.run(scores, tracing=trace is not None, effects=effects)
        left = scores.logits
        sampled = rows.pipeline.token_sampler.sample(scores)
        if known_codes is not None:
            sampled.codes = torch.where(known_codes < 0, sampled.codes, known_codes)
        if effects is not None:
            effects.note(SAMPLING, left, sampled.logits)
        given = None if logits is own else own  # for the trace
        step = StepTensors(logits, clean, given, penalised, scores, sampled, effects)
        sources: Sequence[int] = range(len(rows.slots))
        if rows.pipeline.searches:
            step, sources = self._search(rows, step)
        sampled = step.sampled
        empty = (
            step.sampled.empty if known_codes is None else step.sampled.empty & (known_codes < 0)
        )
        ended = empty | (sampled.codes == self._stop_token)
        stopped = rows.stopped | ended | (rows.lengths >= rows.numbers.limits[:, 0])
        codes = sampled.codes.masked_fill(stopped, self._stop_token)
        alternatives = sampled.alternatives
        if alternatives is not None and (decision := step.scores.decision) is not None:
            ends = ~decision.branched | stopped[:, None]
            alternatives = alternatives.masked_fill(ends | (alternatives == self._stop_token), -1)
        records: Sequence[TraceStep] = ()
        if trace is not None:
            alive = ~rows.stopped
            entry = step.record(codes, self._stop_token, alive=alive, empty=empty, top=trace.top)
            trace.records.append(entry)
            if alternatives is not None:
                records = [step.rescored(entry, one) for one in alternatives[:, 1:].unbind(1)]
        rows.append(codes, stopped, step.scores, sampled)
        beam_scores = rows.beam_scores.clone() if rows.pipeline.searches else None
        return StepResult(codes, sources, beam_scores, alternatives, records)

    def _search(self, rows: BatchView, step: StepTensors) -> tuple[StepTensors, Sequence[int]]:
        """Extend the beams of every search; a row may become the continuation of another."""
        logits = step.scores.logits
        full = rows.lengths >= rows.numbers.limits[:, 0]
        finished = rows.stopped | full | ~(logits > -torch.inf).any(-1)
        found = extend(
            rows.pipeline.searches, logits, step.sampled.codes, rows.beam_scores, finished
        )
        moved = [place for place, source in enumerate(found.sources) if place != source]
        if moved:
            sources = [found.sources[place] for place in moved]
            self.table.copy(
                [rows.slots[place] for place in sources],
                [rows.slots[place] for place in moved],
                [rows.rows[place] for place in sources],
            )
            rows.load()
            step = step.take(torch.tensor(found.sources, device=logits.device))
        rows.put_beams(found.scores)
        step.sampled.codes = found.codes.masked_fill(found.codes < 0, self._stop_token)
        return step, found.sources

    def _batch_views(self, slots: tuple[int, ...]) -> BatchView:
        """Return the rows of a step; those of the last few sets are kept."""
        assert slots, "there is no row"
        built = self._built.pop(slots, None)
        if built is None:
            rows = [self._rows[slot] for slot in slots]
            built = BatchView(self.table, slots, rows, self.vocab_size, self._stop_token)
            if len(self._built) >= _BUILT:
                del self._built[next(iter(self._built))]
        self._built[slots] = built
        return built
