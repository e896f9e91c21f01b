"""Level 0 over the pages of a pool, in functions that a GPU records: see `gpu.graphs`.

A graph is a way to play a function, not another one: without a capturer the same are called.
There is one for each number of rows, with what launches nothing else behind it: the logits alone,
which the sampler then samples from as everywhere; or a *burst*, several frames sampled one after
the other, where one kernel samples all rows; and one for all rows with the statistics of attention,
which entropix reads. Where a row goes on is computed on the device: the host sends what it decided
alone.
"""

from collections.abc import Sequence
from functools import partial
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from app.engine.ar.model_runner import ArModelRunner, Fetch, ModelOutput
from app.engine.ar.row_pages import RowPages
from app.engine.ar.sequence import ArSequence
from app.engine.ar.step_graphs import StepGraphs
from app.engine.ar.step_results import StepResults
from gpu.graphs import Capture, Replay
from gpu.transfers import Upload
from models.prefill_graphs import PrefillGraphRunner
from models.stack.paged_cache import PAGE, PagedCache, PagePool
from models.stack.paged_passes import Placed
from models.valle import Valle
from samplers.ar.state import HostColumn, null_place
from samplers.cuda import operators


class GraphRunner(ArModelRunner):
    """Steps over the first rows of a table, replayed; the host is a step ahead."""

    lag: ClassVar[int] = 1
    # Frames of a burst of plain rows. More would have joins wait longer; it divides a usual block.
    stride: ClassVar[int] = 5
    cache: PagedCache

    @torch.inference_mode()
    def __init__(
        self, model: Valle, pool: PagePool, slots: int, max_length: int, capture: Capture
    ) -> None:
        reader = partial(PrefillGraphRunner, model, pool, [0], capture, max_length)
        super().__init__(model, pool.new_cache(slots, max_length), reader)
        device = model.separator.device
        vocab_size = self.sampler.vocab_size
        self._passes = model.transformer.paged(pool)
        self._graphs = StepGraphs.up_to(slots)
        self.places = RowPages(pool, slots, max_length, device)
        # By slots, behind them what is predicted of the null condition
        in_all = slots if model.null_head is None else 2 * slots
        self._logits = torch.zeros(in_all, vocab_size, device=device)
        self._attention = torch.zeros(4, slots, device=device)
        self._results = StepResults(slots, self.stride, self.text_width, device)
        for slot in range(slots):
            self._place(slot, slot, 0, 0)
        self._sent = np.zeros_like(self.table.host)  # the numbers that the device has
        # Slots of some sequences, their partners', and the partners of those that are guided
        self._asked = torch.zeros(3, slots, dtype=torch.int64, device=device)
        self._send_numbers = Upload(self.table.numbers).send
        self._send_asked = Upload(self._asked).send
        self.places.send()
        self._send_numbers(self._sent)
        self._logits_of(self.first_hidden)  # measures what it has to before it is captured
        # Largest first: the others then find all the memory that they need in the shared pool.
        graphs = self._graphs
        graphs.attending = capture(partial(self._feed, slots, attends=True))
        for rows in reversed(graphs.sizes):
            graphs.feeding[rows] = capture(partial(self._feed, rows))
            if model.transformer.kernels.runs(operators.sample.name):
                graphs.sampling[rows] = capture(partial(self._sample, rows))

    def feed(self, sequences: Sequence[ArSequence]) -> ModelOutput:
        """Feed sequences; see `ArModelRunner`."""
        wanted = any(one.wants_attention for one in sequences)
        graphs = self._graphs
        replay = graphs.attending if wanted else graphs.feeding[self._used_rows()]
        self._replay(replay, sequences, 1)
        asked = np.zeros(self._asked.shape, np.int64)
        slots_in_all = len(self.table.held)
        partners = [null_place(one.partner, one.slot, slots_in_all) for one in sequences]
        guided = [
            partner for one, partner in zip(sequences, partners, strict=True) if one.is_guided
        ]
        for row, slots in zip(
            asked, ([one.slot for one in sequences], partners, guided), strict=True
        ):
            row[: len(slots)] = slots
        self._send_asked(asked)
        own, partner = self._asked[:2, : len(partners)]
        flags = self._logits.isnan().any(-1)
        invalid = flags.index_select(0, own)
        if guided:
            invalid |= flags.index_select(0, partner)
        return ModelOutput(
            self._logits.index_select(0, own),
            self._logits.index_select(0, self._asked[2, : len(guided)]) if guided else None,
            self._attention.index_select(1, own).T,
            invalid,
            [place for place, one in enumerate(sequences) if not one.idle],
            self._results.text[:, 0].index_select(0, own) if _any_follows(sequences) else None,
        )

    def sample(self, sequences: Sequence[ArSequence]) -> Fetch | None:
        """Sample a burst of frames in one graph, where the rows are plain; see `ArModelRunner`."""
        if not self._graphs.sampling or not self._plain.issuperset(sequences):
            return None
        slots = [one.slot for one in sequences]
        self.table.activate(slots)
        self._replay(self._graphs.sampling[self._used_rows()], sequences, self.stride)
        self.table.note_sampled(slots, self.stride)
        follows = _any_follows(sequences)
        return self._results.fetch(slots, range(len(slots)), self.stride, follows=follows)

    def fetch(self, fed: ModelOutput, codes: Tensor, logprobs: Tensor | None) -> Fetch:
        """Return what gives the results of a step; see `ArModelRunner`."""
        results = self._results.codes[0, : len(codes)]
        results[:, 0].copy_(codes)
        if logprobs is not None:
            results[:, 1].copy_(logprobs)
        results[:, 2].copy_(fed.invalid)
        if fed.text is not None:  # which rows of slots are, so that one download serves both
            self._results.text[: len(codes), 0].copy_(fed.text)
        return self._results.fetch(range(len(codes)), fed.places, 1, follows=fed.text is not None)

    def make_room(self, sequence: ArSequence) -> None:
        """Take the pages that a row lacks for its next step; see `ArModelRunner`."""
        if sequence.idle:
            return
        # A row without frames writes, too: what its first frame overwrites.
        ahead = self.table.held[sequence.slot] + self.stride - 1
        frames = max(1, min(ahead, sequence.inputs.max_frames))
        for condition in sequence.conditions:
            length = condition.length + frames
            if length > len(self.cache.pages(condition.slot)) * PAGE:
                self.cache.reserve(condition.slot, length)
                self._cache_changed(condition.slot)

    def close(self) -> None:
        """Forget what was captured, which refers to the runner that holds it; free all pages."""
        self._graphs.close()
        if isinstance(self._read, PrefillGraphRunner):
            self._read.close()
        for slot in range(len(self.cache.lengths)):
            self.cache.rewind(slot, 0)

    def _write_row(self, sequence: ArSequence) -> None:
        """Write where a row goes on, too."""
        super()._write_row(sequence)
        for condition in sequence.conditions:
            self._place(condition.slot, sequence.slot, condition.length, condition.start)
            self._cache_changed(condition.slot)

    def _leave(self, sequence: ArSequence) -> None:
        """Have a row read and write nothing that matters."""
        super()._leave(sequence)
        for condition in sequence.conditions:
            slot = condition.slot
            self.places.lay(slot, ())
            self._place(slot, slot, 0, 0)

    def _place(self, slot: int, owner: int, length: int, start: int) -> None:
        """Have a row go on behind a prefix of so many positions, fed with an owner's codes."""
        first = owner * self.table.codes.shape[1] + int(self.table.host[owner, HostColumn.PROMPTED])
        self.places.place(slot, owner, first, length, start)

    def _cache_changed(self, slot: int) -> None:
        """Read the pages of a slot anew."""
        self.places.lay(slot, self.cache.pages(slot))

    def _used_rows(self) -> int:
        """Return how many rows a step has: idle ones refer to their partners' slots, too."""
        used = 1 + max(condition.slot for one in self._rows for condition in one.conditions)
        return self._graphs.size_for(used)

    def _replay(self, replay: Replay | None, sequences: Sequence[ArSequence], frames: int) -> None:
        """Bring what the host changed to the device, and play frames of some sequences."""
        assert replay is not None, "the runner is closed"
        if not np.array_equal(self._sent, self.table.host):
            self._sent[:] = self.table.host
            self._send_numbers(self._sent)
        self.places.send()
        replay()
        for one in sequences:
            if one.idle:
                continue
            fed = min(self.table.held[one.slot] + frames - 1, one.inputs.max_frames)
            for condition in one.conditions:
                self.cache.lengths[condition.slot] = condition.length + fed

    def _run(self, rows: int, frame: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return logits, the last layer's queries, what is seen, and which of some rows begin."""
        # A row without a frame is placed as if it had one: what it writes is overwritten by that.
        # What has ended unknown to the host writes its last frame again.
        places = self.places
        owner = places.constants[0, :rows]
        own = places.constants[1:, :rows]
        frames = self.table.lengths.index_select(0, owner)
        begins = frames == 0
        newest, place, position, seen = (own + frames.clamp(min=1)).unbind()
        code = self.table.codes.view(-1).index_select(0, newest)
        stored = place + places.origins[:rows].gather(1, (place // PAGE)[:, None])[:, 0]
        rotations = self._passes.rotations.index_select(0, position)
        placed = Placed(rotations, stored, seen[:, None], places.sent_pages[:rows])
        embedded = self.model.embed_response(code[:, None], 0)
        embedded = self.model.transformer.entered(embedded, position)
        hidden, queries = self._passes.run(embedded, placed, self.taps)
        hidden = torch.where(begins[:, None], self.first_hidden[:rows], hidden)
        if self.text_width:  # leave the attention to the text, too
            asked = self._aligned(queries)
            asked = torch.where(begins[:, None], self.first_query[:rows], asked)
            scores = (self.text_keys[:rows] @ asked[..., None])[..., 0] + self.text_bias[:rows]
            self._results.text[:rows, frame].copy_(scores.softmax(-1))
        return self._logits_of(hidden), queries[0], seen, begins

    def _logits_of(self, states: Tensor) -> Tensor:
        """Return logits ``[R, V]``, and behind them what is predicted of the null condition."""
        if self.model.null_head is None:
            return self.model.logits(states, 0)
        return self.model.logits_with_null(states, slice(None))

    def _feed(self, rows: int, *, attends: bool = False) -> None:
        """Leave the logits of the first rows, and the statistics of their attention if asked."""
        logits, queries, seen, begins = self._run(rows)
        self._logits[:rows].copy_(logits[:rows])
        if len(logits) > rows:
            behind = len(self.table.held)
            self._logits[behind : behind + rows].copy_(logits[rows:])
        if attends:
            found = self._passes.attention(queries, seen, self.places.sent_pages[:rows])
            first = self.first_attention[:, :rows]
            self._attention[:, :rows].copy_(torch.where(begins, first, found))

    def _sample(self, rows: int) -> None:
        """Sample a burst of the first rows, and leave the results."""
        table = self.table
        for frame in range(self.stride):
            operators.sample.operator(
                self._run(rows, frame)[0], table.numbers[:rows], table.avoid[:rows],
                self.plain[:rows], table.codes[:rows], table.lengths[:rows],
                table.stopped[:rows], self._results.codes[frame, :rows],
                self.model.config.stop_token,
            )  # fmt: skip


def _any_follows(sequences: Sequence[ArSequence]) -> bool:
    return any(one.progress is not None for one in sequences)
