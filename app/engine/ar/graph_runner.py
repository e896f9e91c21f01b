"""Level 0 over the pages of a pool, in functions that a GPU records: see `gpu.graphs`.

A graph is a way to play a function, not another one: without a capturer the same are called.
There is one for each number of rows, with what launches nothing else behind it: the logits alone,
which the sampler then samples from as everywhere; or a *look*, several frames sampled one after the
other, where one kernel samples all rows; and one for all rows with the statistics of attention,
which entropix reads. Where a row goes on is computed on the device: the host sends what it decided
alone.
"""

from collections.abc import Sequence
from functools import partial
from typing import ClassVar, Final

import numpy as np
import torch
from torch import Tensor

from app.engine.ar.model_runner import ArModelRunner, Fetch, ModelOutput, SampledTokens
from app.engine.ar.sequence import ArSequence
from gpu.graphs import Capture, Replay
from gpu.transfers import Download, Upload
from models.prefill_graphs import PrefillGraphRunner
from models.stack.paged_cache import PAGE, PagedCache, PagePool
from models.stack.paged_passes import Placed
from models.valle import Valle
from samplers.ar.state import HostColumn
from samplers.cuda import operators
from samplers.plain import RESULTS

_ON_THEIR_WAY: Final = 4  # results: of the look that was queued last, and of that before


class GraphRunner(ArModelRunner):
    """Steps over the first rows of a table, replayed; the host is a step ahead."""

    lag: ClassVar[int] = 1
    # Frames of a look at plain rows. More would have joins wait longer; it divides a usual block.
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
        # No power of two that is nearly all: a row that is not used costs next to nothing.
        self._sizes = [*(1 << n for n in range(slots.bit_length()) if 4 << n <= 3 * slots), slots]
        self._kernels = model.transformer.kernels
        self._padding = pool.padding
        self._pages = torch.full((slots, -(-max_length // PAGE)), pool.padding, device=device)
        # Of each page of a row what is added to a position in the row to find it in the pool
        self._columns = -PAGE * torch.arange(self._pages.shape[1], device=device)
        self._origins = torch.add(self._columns, self._pages, alpha=PAGE)
        # ``[S, P]`` int64, the host's side of the pages of each row, in their order; the pool's
        # padding where a row has none
        self.pages = np.full(self._pages.shape, pool.padding)
        self._rows_changed = False
        self._logits = torch.zeros(slots, vocab_size, device=device)
        self._attention = torch.zeros(4, slots, device=device)
        # What a look leaves, in one piece of memory: ``[stride, S, RESULTS]`` float64, behind it
        # ``[S, stride, W]`` float32 of `SampledTokens.text`
        frames = self.stride
        self._least = frames * slots * RESULTS
        self._each = frames * self.text_width // 2  # of a row's text, in numbers of 8 bytes
        told = torch.zeros(self._least + slots * self._each, dtype=torch.float64, device=device)
        self._results = told[: self._least].view(frames, slots, RESULTS)
        self._text = told[self._least :].view(torch.float32).view(slots, frames, self.text_width)
        self._download = Download(told, _ON_THEIR_WAY)
        # ``[5, S]`` of each row: the slot whose newest code it is fed, its own but for that without
        # the text; and, one less than of its first frame, where that is among the table's codes,
        # among the row's positions, its position id, and how many positions it sees
        self._rows_of = np.zeros((5, slots), np.int64)
        for slot in range(slots):
            self._place(slot, slot, 0, 0)
        self._constants = torch.zeros(self._rows_of.shape, dtype=torch.int64, device=device)
        self._sent = np.zeros_like(self.table.host)  # the numbers that the device has
        # Slots of some sequences, their partners', and the partners of those that are guided
        self._asked = torch.zeros(3, slots, dtype=torch.int64, device=device)
        self._send_numbers, self._send_pages, self._send_constants, self._send_asked = (
            Upload(one).send
            for one in (self.table.numbers, self._pages, self._constants, self._asked)
        )
        self._send_constants(self._rows_of)
        self._send_numbers(self._sent)
        model.logits(self.first_hidden, 0)  # measures what it has to before it is captured
        # Largest first: the others then find all the memory that they need in the shared pool.
        self._attending: Replay | None = capture(partial(self._feed, slots, attends=True))
        self._feeding: dict[int, Replay] = {}
        self._sampling: dict[int, Replay] = {}
        for rows in reversed(self._sizes):
            self._feeding[rows] = capture(partial(self._feed, rows))
            if self._kernels.runs(operators.sample.name):
                self._sampling[rows] = capture(partial(self._sample, rows))

    def feed(self, sequences: Sequence[ArSequence]) -> ModelOutput:
        """Feed sequences; see `ArModelRunner`."""
        wanted = any(one.wants_attention for one in sequences)
        replay = self._attending if wanted else self._feeding[self._used_rows()]
        self._replay(replay, sequences, 1)
        asked = np.zeros(self._asked.shape, np.int64)
        partners = [one.partner for one in sequences]
        guided = [one.partner for one in sequences if len(one.conditions) > 1]
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
            self._text[:, 0].index_select(0, own) if _any_follows(sequences) else None,
        )

    def sample(self, sequences: Sequence[ArSequence]) -> Fetch | None:
        """Sample a look in one graph, where the rows are plain; see `ArModelRunner`."""
        if not self._sampling or not self._plain.issuperset(sequences):
            return None
        slots = [one.slot for one in sequences]
        self.table.activate(slots)
        self._replay(self._sampling[self._used_rows()], sequences, self.stride)
        self.table.note_sampled(slots, self.stride)
        return self._arrival(slots, range(len(slots)), self.stride, _any_follows(sequences))

    def fetch(self, fed: ModelOutput, codes: Tensor, logprobs: Tensor | None) -> Fetch:
        """Return what gives the results of a step; see `ArModelRunner`."""
        results = self._results[0, : len(codes)]
        results[:, 0].copy_(codes)
        if logprobs is not None:
            results[:, 1].copy_(logprobs)
        results[:, 2].copy_(fed.invalid)
        if fed.text is not None:  # which rows of slots are, so that one download serves both
            self._text[: len(codes), 0].copy_(fed.text)
        return self._arrival(range(len(codes)), fed.places, 1, fed.text is not None)

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
                self._moved(condition.slot)

    def close(self) -> None:
        """Forget what was captured, which refers to the batch that holds it; free all pages."""
        self._feeding.clear()
        self._sampling.clear()
        self._attending = None
        if isinstance(self._read, PrefillGraphRunner):
            self._read.close()
        for slot in range(len(self.cache.lengths)):
            self.cache.rewind(slot, 0)

    def _laid(self, sequence: ArSequence) -> None:
        """Write where a row goes on, too."""
        super()._laid(sequence)
        for condition in sequence.conditions:
            self._place(condition.slot, sequence.slot, condition.length, condition.start)
            self._moved(condition.slot)

    def _leave(self, sequence: ArSequence) -> None:
        """Have a row read and write nothing that matters."""
        super()._leave(sequence)
        for condition in sequence.conditions:
            slot = condition.slot
            self.pages[slot] = self._padding
            self._place(slot, slot, 0, 0)
        self._rows_changed = True

    def _place(self, slot: int, owner: int, length: int, start: int) -> None:
        """Have a row go on behind a prefix of so many positions, fed with an owner's codes."""
        first = owner * self.table.codes.shape[1] + int(self.table.host[owner, HostColumn.PROMPTED])
        self._rows_of[:, slot] = owner, first - 1, length - 1, start - 1, length

    def _moved(self, slot: int) -> None:
        """Read the pages of a slot anew."""
        pages = self.cache.pages(slot)
        self.pages[slot] = self._padding
        self.pages[slot, : len(pages)] = pages
        self._rows_changed = True

    def _used_rows(self) -> int:
        """Return how many rows a step has: idle ones refer to their partners' slots, too."""
        used = 1 + max(condition.slot for one in self._rows for condition in one.conditions)
        return next(rows for rows in self._sizes if rows >= used)

    def _replay(self, replay: Replay | None, sequences: Sequence[ArSequence], frames: int) -> None:
        """Bring what the host changed to the device, and play frames of some sequences."""
        assert replay is not None, "the batch is closed"
        if not np.array_equal(self._sent, self.table.host):
            self._sent[:] = self.table.host
            self._send_numbers(self._sent)
        if self._rows_changed:
            self._send_constants(self._rows_of)
            self._send_pages(self.pages)
            torch.add(self._columns, self._pages, alpha=PAGE, out=self._origins)
            self._rows_changed = False
        replay()
        for one in sequences:
            if one.idle:
                continue
            fed = min(self.table.held[one.slot] + frames - 1, one.inputs.max_frames)
            for condition in one.conditions:
                self.cache.lengths[condition.slot] = condition.length + fed

    def _arrival(
        self, rows: Sequence[int], places: Sequence[int], frames: int, follows: bool
    ) -> Fetch:
        """Return what gives some rows of the results; ``places`` are those that may be invalid."""
        highest = 1 + max(rows) if follows else 0
        ticket = self._download.fetch(self._least + highest * self._each)

        def arrived() -> list[SampledTokens]:
            told = self._download.wait(ticket)
            results = told[: self._least].reshape(self._results.shape)[:frames, list(rows)]
            text = None
            if follows:
                numbers = told[self._least :].view(np.float32)
                text = numbers.reshape(highest, *self._text.shape[1:])[list(rows)]
            return [
                SampledTokens(
                    [int(code) for code in codes],
                    logprobs,
                    frozenset(place for place in places if invalid[place]),
                    None if text is None else text[:, frame],
                )
                for frame, (codes, logprobs, invalid) in enumerate(
                    results.transpose(0, 2, 1).tolist()
                )
            ]

        return arrived

    def _run(self, rows: int, frame: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return logits, the last layer's queries, what is seen, and which of some rows begin."""
        # A row without a frame is placed as if it had one: what it writes is overwritten by that.
        # What has ended unknown to the host writes its last frame again.
        owner = self._constants[0, :rows]
        own = self._constants[1:, :rows]
        frames = self.table.lengths.index_select(0, owner)
        begins = frames == 0
        newest, place, position, seen = (own + frames.clamp(min=1)).unbind()
        code = self.table.codes.view(-1).index_select(0, newest)
        stored = place + self._origins[:rows].gather(1, (place // PAGE)[:, None])[:, 0]
        rotations = self._passes.rotations.index_select(0, position)
        placed = Placed(rotations, stored, seen[:, None], self._pages[:rows])
        embedded = self.model.embed_response(code[:, None], 0)
        embedded = self.model.transformer.entered(embedded, position)
        hidden, queries = self._passes.run(embedded, placed, self.layers)
        hidden = torch.where(begins[:, None], self.first_hidden[:rows], hidden)
        if self.text_width:  # leave the attention to the text, too
            asked = self._aligned(queries)
            asked = torch.where(begins[:, None], self.first_query[:rows], asked)
            scores = (self.text_keys[:rows] @ asked[..., None])[..., 0] + self.text_bias[:rows]
            self._text[:rows, frame].copy_(scores.softmax(-1))
        return self.model.logits(hidden, 0), queries[0], seen, begins

    def _feed(self, rows: int, *, attends: bool = False) -> None:
        """Leave the logits of the first rows, and the statistics of their attention if asked."""
        logits, queries, seen, begins = self._run(rows)
        self._logits[:rows].copy_(logits)
        if attends:
            found = self._passes.attention(queries, seen, self._pages[:rows])
            first = self.first_attention[:, :rows]
            self._attention[:, :rows].copy_(torch.where(begins, first, found))

    def _sample(self, rows: int) -> None:
        """Sample a look of the first rows, and leave the results."""
        table = self.table
        for frame in range(self.stride):
            operators.sample.operator(
                self._run(rows, frame)[0], table.numbers[:rows], table.avoid[:rows],
                self.plain[:rows], table.codes[:rows], table.lengths[:rows],
                table.stopped[:rows], self._results[frame, :rows],
                self.model.config.stop_token,
            )  # fmt: skip


def _any_follows(sequences: Sequence[ArSequence]) -> bool:
    return any(one.progress is not None for one in sequences)
