"""Utterances in the rows of a recorded step: the host plays a step while it reads the one before.

So whatever the host learns of a step, it learns when the next one is under way: a row that drew
the stop draws nothing more by itself, and of a row that is rewound or given to another the results
of its old generation are dropped.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch

from app.engine.errors import GenerationFailed
from app.engine.job import SamplerMemory
from app.engine.level_0.admission import Runner
from app.engine.level_0.backtracking import Backtracker
from app.engine.level_0.hypothesis import Condition, Hypothesis
from app.engine.level_0.hypothesis_group import HypothesisGroup
from app.engine.level_0.input_batch import Rows
from app.engine.level_0.recorded.decode_graph import DecodeGraph
from app.engine.utterance import UtteranceInput
from models.cuda.graphs import Record
from models.prefix_cache import PrefixCache
from models.stack.paged_cache import OutOfPages, PagePool
from models.valle import Valle
from samplers.ar.chain import ChainKind, kind_of, largest, why_eager
from samplers.ar.row_state import Host
from samplers.knobs.features import is_on
from samplers.ops.bounds import within
from samplers.ops.draw import Stage, stream_key


class Launched(NamedTuple):
    """A step that was queued.

    Attributes:
        ticket: Of its results.
        rows: The hypotheses that it draws for, with slot and generation of each.
    """

    ticket: int
    rows: Sequence[tuple[Hypothesis, int, int]]


class RecordedRows(Rows):
    """The rows of a recorded step, as the host knows them."""

    def __init__(self, graph: DecodeGraph) -> None:
        """Begin without rows."""
        super().__init__(graph.cache)
        self.graph = graph
        self._kinds: dict[Hypothesis, ChainKind] = {}

    @torch.inference_mode()
    def add(
        self, hypotheses: Sequence[Hypothesis], inputs: UtteranceInput, candidate: int = 0
    ) -> None:
        """Write the row of one hypothesis; see `Rows.add`."""
        (hypothesis,) = hypotheses
        graph, params, silent = self.graph, inputs.params, inputs.silent
        slot, partner = hypothesis.slots[0], hypothesis.slots[-1]
        kind = self._kinds[hypothesis] = kind_of(params)
        graph.write_knobs(slot, kind, params, silent)
        prompt = None
        if params.penalty_includes_prompt and inputs.prompt is not None:
            prompt = inputs.prompt[:, 0]
        graph.state.begin_row(slot, within(params.mirostat_tau), prompt, runs=kind.reads_runs)
        for condition in hypothesis.conditions:
            graph.first_hidden[condition.slot] = condition.first.hidden[0]
            graph.first_attention[:, condition.slot] = condition.first.attention[:, 0]
            numbers = graph.host[condition.slot]
            numbers[Host.PREFIX], numbers[Host.START] = condition.length, condition.start
            numbers[Host.OWNER] = slot
        graph.guidance[slot, 0] = within(params.cfg_strength)
        graph.guidance[slot, 1] = params.cfg_rescale
        numbers = graph.host[slot]
        numbers[Host.ACTIVE], numbers[Host.PARTNER], numbers[Host.AVOID] = 1, partner, -1
        numbers[Host.GENERATION] += 1
        numbers[Host.RESTART] = numbers[Host.ATTEMPT] = 0
        numbers[Host.LIMIT] = inputs.max_frames
        numbers[Host.PROMPTED] = 0 if prompt is None else len(prompt)
        numbers[Host.KEY] = stream_key(inputs.seed, inputs.utterance, Stage.AR, candidate=candidate)
        self.hypotheses += hypotheses

    def remove(self, hypotheses: Sequence[Hypothesis]) -> None:
        """Make rows idle; see `Rows.remove`."""
        for hypothesis in hypotheses:
            if hypothesis in self.hypotheses:
                self.hypotheses.remove(hypothesis)
                self._kinds.pop(hypothesis)
                for slot in hypothesis.slots:
                    self.graph.forget(slot)
                    numbers = self.graph.host[slot]
                    numbers[Host.ACTIVE] = numbers[Host.PREFIX] = numbers[Host.START] = 0
                    numbers[Host.OWNER] = numbers[Host.PARTNER] = slot
                    numbers[Host.GENERATION] += 1
                    numbers[Host.RESTART] = 0

    def set_active(self, hypothesis: Hypothesis, *, active: bool) -> None:
        """Have a row drawn, or not, from the next step on."""
        self.graph.host[hypothesis.slots[0], Host.ACTIVE] = active

    @torch.inference_mode()
    def rewind(self, hypothesis: Hypothesis, backtracker: Backtracker) -> None:
        """Have a row begin anew behind the codes that its hypothesis has kept."""
        graph, slot, kept = self.graph, hypothesis.slots[0], len(hypothesis.codes)
        avoid = torch.zeros(1, graph.state.avoid.shape[1])
        graph.state.avoid[slot] = backtracker.penalise(avoid, kept)[0].to(
            graph.first_hidden.device, non_blocking=True
        )
        numbers = graph.host[slot]
        numbers[Host.GENERATION] += 1
        numbers[Host.ATTEMPT] += 1
        numbers[Host.RESTART] = numbers[Host.AVOID] = kept
        if self._kinds[hypothesis].reads_runs:
            prompt = graph.state.codes[slot, : int(numbers[Host.PROMPTED])].cpu()
            graph.state.recount(slot, torch.cat([prompt, torch.tensor(hypothesis.codes)]))

    def memory(self, hypotheses: Sequence[Hypothesis]) -> SamplerMemory | None:
        """Return what is known of an utterance's one row where that is more than its codes."""
        hypothesis, state = hypotheses[0], self.graph.state
        params = hypothesis.inputs.params
        if params.best_of > 1 or not (params.mirostat_mode or is_on("pause", params)):
            return None
        slot, columns = hypothesis.slots[0], len(hypothesis.codes) + 1
        mu, last_act = (table[slot, :columns].cpu() for table in (state.mu, state.last_act))
        return SamplerMemory(mu.numpy(), last_act.numpy())

    def make_room(self, hypothesis: Hypothesis) -> None:
        """Take the pages that the next step of a row needs, if it has one and draws.

        Raises:
            OutOfPages: The pool has none.
        """
        if hypothesis in self._kinds and self.graph.host[hypothesis.slots[0], Host.ACTIVE]:
            for condition in hypothesis.conditions:
                self.graph.reserve(condition.slot, self._columns(hypothesis, condition))

    def launch(self) -> Launched | None:
        """Queue a step of all active rows; None if there is none."""
        host = self.graph.host
        rows = [
            (one, one.slots[0], int(host[one.slots[0], Host.GENERATION]))
            for one in self.hypotheses
            if host[one.slots[0], Host.ACTIVE]
        ]
        if not rows:
            return None
        kind = largest(self._kinds[one] for one, *_ in rows)
        # Idle rows among them refer to their partners' slots, too.
        slots = [slot for one in self.hypotheses for slot in one.slots]
        columns = max(
            self._columns(one, condition) for one, *_ in rows for condition in one.conditions
        )
        ticket = self.graph.launch(max(slots) + 1, columns, kind)
        return Launched(ticket, rows)

    def _columns(self, hypothesis: Hypothesis, condition: Condition) -> int:
        """Return how many positions a sequence may hold after the next step."""
        # The step before may have drawn a code that is not read yet.
        return min(condition.length + len(hypothesis.codes) + 2, self.cache.max_length)

    def is_current(self, slot: int, generation: int) -> bool:
        """Return whether a row is still that of a generation."""
        return int(self.graph.host[slot, Host.GENERATION]) == generation


class RecordedRunner(Runner):
    """Draws utterances in the rows of one `DecodeGraph`. One thread only."""

    def __init__(
        self,
        model: Valle,
        prefixes: PrefixCache,
        pool: PagePool,
        *,
        slots: int,
        max_length: int,
        record: Record,
    ) -> None:
        """Record all steps, and begin without utterances.

        Args:
            model: On the device to use.
            prefixes: Keys and values of what prefixes have in common, in pages of the pool.
            pool: Of keys and values.
            slots: The most rows of a step.
            max_length: The most positions of a row: a prefix and the frames after it.
            record: Records functions.
        """
        graph = DecodeGraph(model, pool, slots, max_length, record=record)
        self._recorded = RecordedRows(graph)
        super().__init__(model, prefixes, self._recorded)
        self._flying: tuple[Launched, Mapping[Hypothesis, HypothesisGroup]] | None = None

    def draws(self, inputs: UtteranceInput) -> bool:
        """Return whether its knobs are recorded; see `samplers.ar.chain.why_eager`."""
        return not inputs.trace and inputs.kept is None and why_eager(inputs.params) is None

    def close(self) -> None:
        """Forget what was recorded, which refers to the graph that holds it; free all pages."""
        self._recorded.graph.close()

    def pause(self, group: HypothesisGroup) -> None:
        """Leave the rows of an utterance idle; see `Runner.pause`."""
        if group in self._running:
            self._running.remove(group)
            self._set_active(group, active=False)
            group.paused = True

    def resume(self, group: HypothesisGroup) -> None:
        """Draw its rows again; see `Runner.resume`."""
        if group.paused:
            self._running.append(group)
            self._set_active(group, active=True)
            group.paused = False

    @torch.inference_mode()
    def step(self) -> Sequence[HypothesisGroup]:
        """Queue a step, and read the one before; see `Runner.step`.

        Returns:
            The utterances that were running.
        """
        groups = self.running
        for group in groups:
            self._make_room(group)
        read, launched = self._flying, self._recorded.launch()
        self._flying = None
        if launched is not None:
            self._flying = launched, {one: group for group in groups for one in group.hypotheses}
        if read is not None:
            self._read(*read)
        return groups

    def _make_room(self, group: HypothesisGroup) -> None:
        """Take the pages that an utterance needs next; it fails alone where there are none."""
        try:
            for hypothesis in group.hypotheses:
                self._recorded.make_room(hypothesis)
        except OutOfPages as error:
            group.fail(GenerationFailed(f"no memory for keys and values: {error}"))
            self._free(group)

    def _read(self, launched: Launched, group_of: Mapping[Hypothesis, HypothesisGroup]) -> None:
        """Append what a step drew."""
        rows, results = self._recorded, self._recorded.graph.results(launched.ticket)
        groups: dict[HypothesisGroup, None] = {}
        for hypothesis, slot, generation in launched.rows:
            if not rows.is_current(slot, generation):
                continue
            group = group_of[hypothesis]
            groups[group] = None
            code, logprob, invalid = results[slot].tolist()
            if invalid:
                group.fail(GenerationFailed("the model gave logits that are no numbers"))
                continue
            if group.keeps_logprobs:
                hypothesis.logprobs.append(logprob)
            kept = hypothesis.append(int(code))
            if kept is not None and hypothesis.finish_reason is None:
                assert hypothesis.backtracker is not None
                rows.rewind(hypothesis, hypothesis.backtracker)
        for group in groups:
            if group.error is None:
                group.update(rows)
            if group.finish_reason is not None:
                self._free(group)

    def _set_active(self, group: HypothesisGroup, *, active: bool) -> None:
        for hypothesis in group.hypotheses:
            if hypothesis in self._recorded.hypotheses:
                self._recorded.set_active(hypothesis, active=active)

    def _free(self, group: HypothesisGroup) -> None:
        """Free the rows and slots of an utterance that has ended."""
        if group in self._running:
            self._running.remove(group)
        group.paused = False
        if group.finish_reason not in {"cancelled", "error"}:
            group.memory = self._recorded.memory(group.hypotheses)
        self._rows.release(group.slots)
        group.slots = []
