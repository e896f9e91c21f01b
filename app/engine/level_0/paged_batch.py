"""Level 0 over the pages of a pool, in functions that a GPU records: see `models.cuda.graphs`.

A recording is a way to play a function, not another one: without a recorder the same are called.
There is one for each number of rows, with what launches nothing else behind it: the logits alone,
which the sampler then draws from as everywhere, or logits and draw, where one kernel draws all rows
of the step; and one for all rows with the statistics of attention, which entropix reads.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from app.engine.level_0.hypothesis import Hypothesis
from app.engine.level_0.input_batch import Arrived, Fed, InputBatch
from models.cuda.graphs import Play, Record
from models.cuda.kernels import operators
from models.cuda.transfers import Download, Upload
from models.recorded_prefixes import RecordedPrefixes
from models.stack.paged_cache import PAGE, PagedCache, PagePool
from models.stack.paged_passes import Placed
from models.valle import Valle
from samplers.ar.plain import is_plain, plain_row, plain_width
from samplers.ar.state import Host

RESULTS = 3
"""Columns of the results: the code, its log-probability in nats, and whether the logits had NaN."""


class PagedBatch(InputBatch):
    """Steps over the first rows of a table, played; the host is a step ahead."""

    lag: ClassVar[int] = 1
    cache: PagedCache

    @torch.inference_mode()
    def __init__(
        self, model: Valle, pool: PagePool, slots: int, max_length: int, record: Record
    ) -> None:
        reader = partial(RecordedPrefixes, model, pool, [0], record, max_length)
        super().__init__(model, pool.new_cache(slots, max_length), reader)
        device, vocab_size = model.separator.device, self.sampler.vocab_size
        self._passes = model.transformer.paged(pool)
        # No power of two that is nearly all: a row that is not used costs next to nothing.
        self._sizes = [*(1 << n for n in range(slots.bit_length()) if 4 << n <= 3 * slots), slots]
        self._kernels, self._padding = model.transformer.kernels, pool.padding
        self._pages = torch.full((slots, -(-max_length // PAGE)), pool.padding, device=device)
        # ``[S, P]`` int64, the host's side of the pages of each row, in their order; the pool's
        # padding where a row has none
        self.pages = np.full(self._pages.shape, pool.padding)
        self._new_pages = False
        width = plain_width(vocab_size)
        # ``[S, plain_width(V)]`` int64, the knobs of rows that a kernel draws
        self.plain = torch.zeros(slots, width, dtype=torch.int64, device=device)
        self._logits = torch.zeros(slots, vocab_size, device=device)
        self._attention = torch.zeros(4, slots, device=device)
        self._results = torch.zeros(slots, RESULTS, dtype=torch.float64, device=device)
        self._text = torch.zeros(slots, self.text_width, device=device)
        # Of each row: positions of its prefix, position id of its first frame, and the slot whose
        # newest code it is fed: its own, but for that without the text.
        self._rows_of = np.array([[0] * slots, [0] * slots, range(slots)])
        self._places = torch.zeros(8, slots, dtype=torch.int64, device=device)  # see `_placing`
        self._send_numbers, self._send_pages, self._send_places = (
            Upload(one).send for one in (self.table.numbers, self._pages, self._places)
        )
        self._download, self._download_text = Download(self._results), Download(self._text)
        self._plain: set[Hypothesis] = set()
        model.logits(self.first_hidden, 0)  # measures what it has to before it is recorded
        # Largest first: the others then find all the memory that they need in the shared pool.
        self._attending: Play | None = record(partial(self._feed, slots, attends=True))
        self._feeding: dict[int, Play] = {}
        self._drawing: dict[int, Play] = {}
        for rows in reversed(self._sizes):
            self._feeding[rows] = record(partial(self._feed, rows))
            if "draw" in self._kernels.fused:
                self._drawing[rows] = record(partial(self._draw, rows))

    def feed(self, hypotheses: Sequence[Hypothesis]) -> Fed:
        """Feed hypotheses; see `InputBatch`."""
        wanted = any(one.wants_attention for one in hypotheses)
        self._play(self._attending if wanted else self._feeding[self._used_rows()], hypotheses)
        count = sum(len(one.conditions) > 1 for one in hypotheses)
        own, partner = self._places[5:7, : len(hypotheses)]
        flags = self._logits.isnan().any(-1)
        invalid = flags.index_select(0, own)
        if count:
            invalid |= flags.index_select(0, partner)
        return Fed(
            self._logits.index_select(0, own),
            self._logits.index_select(0, self._places[7, :count]) if count else None,
            self._attention.index_select(1, own).T,
            invalid,
            [place for place, one in enumerate(hypotheses) if not one.idle],
            self._text.index_select(0, own) if _any_follows(hypotheses) else None,
        )

    def draw(self, hypotheses: Sequence[Hypothesis]) -> Callable[[], Arrived] | None:
        """Feed and draw in one recording, where the rows are plain; see `InputBatch`."""
        if not self._drawing or not self._plain.issuperset(hypotheses):
            return None
        slots = [one.slot for one in hypotheses]
        self.table.activate(slots)
        self._play(self._drawing[self._used_rows()], hypotheses)
        self.table.note_drawn(slots)
        text = self._text if _any_follows(hypotheses) else None
        return self._arrival(slots, range(len(hypotheses)), text)

    def fetch(self, fed: Fed, codes: Tensor, logprobs: Tensor | None) -> Callable[[], Arrived]:
        """Return what gives the results of a step; see `InputBatch`."""
        results = self._results[: len(codes)]
        results[:, 0].copy_(codes)
        if logprobs is not None:
            results[:, 1].copy_(logprobs)
        results[:, 2].copy_(fed.invalid)
        if fed.text is not None:  # which rows of slots are, so that one download serves both
            self._text[: len(codes)].copy_(fed.text)
        return self._arrival(range(len(codes)), fed.places, fed.text)

    def make_room(self, hypothesis: Hypothesis) -> None:
        """Take the pages that a row lacks for its next step; see `InputBatch`."""
        if hypothesis.idle:
            return
        # A row without frames writes, too: what its first frame overwrites.
        frames = max(1, self.table.held[hypothesis.slot])
        for condition in hypothesis.conditions:
            length = condition.length + frames
            if length > len(self.cache.pages(condition.slot)) * PAGE:
                self.cache.reserve(condition.slot, length)
                self._moved(condition.slot)

    def close(self) -> None:
        """Forget what was recorded, which refers to the batch that holds it; free all pages."""
        self._feeding.clear()
        self._drawing.clear()
        self._attending = None
        if isinstance(self._read, RecordedPrefixes):
            self._read.close()
        for slot in range(len(self.cache.lengths)):
            self.cache.rewind(slot, 0)

    def _enter(self, hypothesis: Hypothesis) -> None:
        """Write the constants of a row."""
        super()._enter(hypothesis)
        params, host, slot = hypothesis.inputs.params, self.table.host, hypothesis.slot
        for condition in hypothesis.conditions:
            self._rows_of[:, condition.slot] = condition.length, condition.start, slot
            self._moved(condition.slot)
        host[slot, Host.PARTNER] = hypothesis.partner
        if self._drawing and is_plain(params):
            self._plain.add(hypothesis)
            record = plain_row(params, self.sampler.vocab_size)
            self.plain[slot] = record.to(self.plain.device, non_blocking=True)

    def _leave(self, hypothesis: Hypothesis) -> None:
        """Have a row read and write nothing that matters."""
        super()._leave(hypothesis)
        self._plain.discard(hypothesis)
        for condition in hypothesis.conditions:
            slot = condition.slot
            self.pages[slot] = self._padding
            self._rows_of[:, slot] = 0, 0, slot
            self.table.host[slot, Host.PARTNER] = slot
        self._new_pages = True

    def _moved(self, slot: int) -> None:
        """Read the pages of a slot anew."""
        pages = self.cache.pages(slot)
        self.pages[slot] = self._padding
        self.pages[slot, : len(pages)] = pages
        self._new_pages = True

    def _used_rows(self) -> int:
        """Return how many rows a step has: idle ones refer to their partners' slots, too."""
        used = 1 + max(condition.slot for one in self._rows for condition in one.conditions)
        return next(rows for rows in self._sizes if rows >= used)

    def _play(self, play: Play | None, hypotheses: Sequence[Hypothesis]) -> None:
        """Bring what the host changed to the device, and play a step of some hypotheses."""
        assert play is not None, "the batch is closed"
        self._send_numbers(self.table.host)
        if self._new_pages:
            self._send_pages(self.pages)
            self._new_pages = False
        self._send_places(self._placing(hypotheses))
        play()
        for one in hypotheses:
            if not one.idle and (frames := self.table.held[one.slot]):
                for condition in one.conditions:
                    self.cache.lengths[condition.slot] = condition.length + frames

    def _placing(self, hypotheses: Sequence[Hypothesis]) -> NDArray[np.int64]:
        """Return ``[8, S]``: what rows are fed, and which are some hypotheses'."""
        # Of each row where in the table's codes the newest is, its position id, where it is stored
        # among the positions of all pages, how many positions it sees, and whether there is none
        # yet: what it then writes is overwritten by its first frame. What has ended unknown to the
        # host writes behind its end. Of hypotheses their slots and partners, then guided partners.
        prefix, start, owner = self._rows_of
        frames = np.array(self.table.held)[owner]
        last = np.maximum(frames - 1, 0)
        newest = np.maximum(self.table.host[owner, Host.PROMPTED] + frames - 1, 0)
        place = prefix + last
        page = self.pages[range(len(place)), place // PAGE]
        told = np.zeros(self._places.shape, np.int64)
        told[0] = owner * self.table.codes.shape[1] + newest
        told[1], told[2] = start + last, page * PAGE + place % PAGE
        told[3], told[4] = place + 1, frames == 0
        partners = [one.partner for one in hypotheses]
        told[5, : len(partners)], told[6, : len(partners)] = (
            [one.slot for one in hypotheses],
            partners,
        )
        guided = [one.partner for one in hypotheses if len(one.conditions) > 1]
        told[7, : len(guided)] = guided
        return told

    def _arrival(
        self, rows: Sequence[int], places: Sequence[int], text: Tensor | None
    ) -> Callable[[], Arrived]:
        """Return what gives some rows of the results; ``places`` are those that may be invalid."""
        ticket = self._download.fetch()
        text_ticket = None if text is None else self._download_text.fetch()

        def arrived() -> Arrived:
            codes, logprobs, invalid = self._download.wait(ticket)[list(rows)].T.tolist()
            broken = frozenset(place for place in places if invalid[place])
            attention = None
            if text_ticket is not None:
                attention = self._download_text.wait(text_ticket)[list(rows)]
            return Arrived([int(code) for code in codes], logprobs, broken, attention)

        return arrived

    def _run(self, rows: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return logits, the last layer's queries, what is seen, and which of some rows begin."""
        newest, positions, places, seen = self._places[:4, :rows]
        begins = self._places[4, :rows].view(torch.bool)[::8]  # the lowest of eight bytes
        code = self.table.codes.view(-1).index_select(0, newest)
        placed = Placed(
            self._passes.rotations[positions], places, seen[:, None], self._pages[:rows]
        )
        embedded = self.model.embed_response(code[:, None], 0)
        hidden, queries = self._passes.run(embedded, placed, self.layers)
        hidden = torch.where(begins[:, None], self.first_hidden[:rows], hidden)
        if self.text_width:  # leave the attention to the text, too
            asked = self._aligned(queries)
            asked = torch.where(begins[:, None], self.first_query[:rows], asked)
            scores = (self.text_keys[:rows] @ asked[..., None])[..., 0] + self.text_bias[:rows]
            self._text[:rows].copy_(scores.softmax(-1))
        return self.model.logits(hidden, 0), queries[0], seen, begins

    def _feed(self, rows: int, *, attends: bool = False) -> None:
        """Leave the logits of the first rows, and the statistics of their attention if asked."""
        logits, queries, seen, begins = self._run(rows)
        self._logits[:rows].copy_(logits)
        if attends:
            found = self._passes.attention(queries, seen, self._pages[:rows])
            first = self.first_attention[:, :rows]
            self._attention[:, :rows].copy_(torch.where(begins, first, found))

    def _draw(self, rows: int) -> None:
        """Draw the first rows, and leave the results."""
        table = self.table
        operators.draw(
            self._run(rows)[0], table.numbers[:rows], table.avoid[:rows], self.plain[:rows],
            table.codes[:rows], table.lengths[:rows], table.stopped[:rows], self._results[:rows],
            self.model.config.stop_token,
        )  # fmt: skip


def _any_follows(hypotheses: Sequence[Hypothesis]) -> bool:
    return any(one.progress is not None for one in hypotheses)
