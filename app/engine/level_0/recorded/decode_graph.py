"""A step of level 0 in one recorded function: embedding, stack, head, guidance, chain and draw.

The host only plays it. What it decides about rows goes to the device as one table of numbers
before a step; what a step drew comes back as one table after it, and is read while the next one
runs. Everything is recorded when the graph is made, one function for each number of rows, of
columns, and each kind of chain.
"""

from collections.abc import Callable, Sequence
from itertools import product

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from models.cuda.graphs import WARM_UPS, Play, Record
from models.cuda.kernels import operators
from models.cuda.transfers import Download, Upload
from models.stack.paged_cache import PAGE, PagePool
from models.valle import Valle
from samplers.ar.chain import FULL, KINDS, PLAIN, Chain, ChainKind, at_least
from samplers.ar.plain import PlainRow, light_row, light_width, plain_row
from samplers.ar.row_state import Host, RowState
from samplers.ar.trace import log_prob_of
from samplers.knobs.params import SamplingParams
from samplers.ops.entropix import AttentionStatistics
from samplers.ops.filters import sanitise
from samplers.ops.guidance import guide

RESULTS = 3
"""Columns of the results: the code, its log-probability in nats, and whether the logits had NaN."""


class DecodeGraph:
    """The recorded steps over the pages of a pool, and the state that they read and write.

    Attributes:
        cache: The KV cache; a slot a row, in pages.
        state: The state of each row.
        host: ``[slots, len(Host)]`` int64, the host's side of `RowState.numbers`; see `launch`.
        pages: ``[slots, P]`` int64, the host's side of the pages of each row, in their order; the
            pool's padding where a row has none.
        first_hidden: ``[slots, D]``, the stack's output at the end of each prefix, which predicts
            the first frame.
        first_attention: ``[4, slots]`` float32, the attention statistics there.
        guidance: ``[slots, 2]`` float32: strength and rescale of rows that are guided.
        tables: The records of all rows' knobs, by kind of chain; of those that operators draw.
        plain: ``[slots, len(PlainRow)]`` float64, the knobs of rows that a kernel draws.
        light: ``[slots, light_width(V)]`` int64, what it reads more if it draws light ones.
    """

    @torch.inference_mode()
    def __init__(
        self,
        model: Valle,
        pool: PagePool,
        slots: int,
        max_length: int,
        *,
        record: Record,
        warm_ups: int = WARM_UPS,
    ) -> None:
        """Allocate everything, and record all steps.

        Args:
            model: On the device and in the dtype to use.
            pool: Of its keys and values.
            slots: Rows.
            max_length: The most positions of a row.
            record: Records functions.
            warm_ups: How often each is called first.
        """
        config, device = model.config, model.separator.device
        self._model, self._stop_token = model, config.stop_token
        vocab_size = self._vocab_size = config.codes + 1
        self.cache = pool.new_cache(slots, max_length)
        self._step = model.transformer.fixed_step(pool, rows=slots, max_length=max_length)
        self._padding = pool.padding
        # One upload brings both tables.
        numbers, pages = slots * len(Host), slots * (self._step.columns[-1] // PAGE)
        uploaded = torch.zeros(numbers + pages, dtype=torch.int64, device=device)
        self._pages = uploaded[numbers:].view(slots, -1)
        self.state = RowState.empty(
            slots, frames=max_length, prompted=config.max_prompt_frames, vocab_size=vocab_size,
            device=device, numbers=uploaded[:numbers].view(slots, -1),
        )  # fmt: skip
        self._host = np.zeros(numbers + pages, np.int64)
        self.host = self._host[:numbers].reshape(slots, -1)
        self.host[:, Host.OWNER] = self.host[:, Host.PARTNER] = range(slots)
        self.pages = self._host[numbers:].reshape(slots, -1)
        self.pages[:] = pool.padding
        self._reserved = [0] * slots  # positions of the pages of each row that are in `pages`
        self.first_hidden = torch.zeros(
            slots, config.width, dtype=model.separator.dtype, device=device
        )
        self.first_attention = torch.zeros(4, slots, device=device)
        self.guidance = torch.ones(slots, 2, device=device)
        self._own = torch.arange(slots, device=device)
        self._results = torch.zeros(slots, RESULTS, dtype=torch.float64, device=device)
        self._upload, self._download = Upload(uploaded), Download(self._results)
        self._upload.send(self._host)
        self._sent = self._host.copy()
        self._kernels = model.transformer.kernels
        self._makers = {
            kind: Chain(kind, 1, vocab_size=vocab_size, stop_token=config.stop_token, device=device)
            for kind in KINDS
            if not self._is_fused(kind)
        }
        self.tables: dict[ChainKind, Tensor] = {
            kind: maker.table().repeat(slots, 1) for kind, maker in self._makers.items()
        }
        self.plain = torch.zeros(slots, len(PlainRow._fields), dtype=torch.float64, device=device)
        width = light_width(vocab_size)
        self.light = torch.zeros(slots, width, dtype=torch.int64, device=device)
        model.logits(self.first_hidden, 0)  # measures what it has to before it is recorded
        self._plays: dict[tuple[int, int, ChainKind], Play] = {}
        # Largest first: the others then find all the memory that they need in the shared pool.
        sizes = product(reversed(self._step.rows), reversed(self._step.columns), KINDS)
        for rows, columns, kind in sizes:
            run = self._function(rows, columns, kind)
            self._plays[rows, columns, kind] = record(run, warm_ups=warm_ups)

    def write_knobs(
        self, slot: int, kind: ChainKind, params: SamplingParams, silent: Tensor | None
    ) -> None:
        """Write a row's knobs for all chains that may draw it.

        Args:
            slot: Which row.
            kind: The smallest of them: a larger one draws where another row needs that.
            params: Resolved.
            silent: See `Chain.record`.
        """
        device, vocab_size = self.first_hidden.device, self._vocab_size
        for one in at_least(kind):
            if one is PLAIN and self._is_fused(one):
                continue  # as the light ones that follow
            if self._is_fused(one):
                row = torch.tensor(plain_row(params, vocab_size), dtype=torch.float64)
                self.plain[slot] = row.to(device, non_blocking=True)
                self.light[slot] = light_row(params, vocab_size).to(device, non_blocking=True)
            else:
                record = self._makers[one].record(params, silent)
                self.tables[one][slot] = record.to(device, non_blocking=True)

    def reserve(self, slot: int, length: int) -> None:
        """Give a row the pages that it lacks for so many positions, from the next step on.

        Raises:
            OutOfPages: The pool has none.
        """
        if length > self._reserved[slot]:
            self.cache.reserve(slot, length)
            pages = self.cache.pages(slot)
            self.pages[slot, : len(pages)] = pages
            self._reserved[slot] = len(pages) * PAGE

    def forget(self, slot: int) -> None:
        """Have a row read and write nothing that matters, from the next step on."""
        self.pages[slot] = self._padding
        self._reserved[slot] = 0

    def launch(self, rows: int, columns: int, kind: ChainKind) -> int:
        """Queue a step of the rows as `host` and `pages` describe them; waits for nothing.

        Args:
            rows: One more than the highest slot in use.
            columns: Positions that the longest row in use holds after the step.
            kind: The kind of chain that all active rows can be drawn with.

        Returns:
            The ticket of the step for `results`.
        """
        if not np.array_equal(self._host, self._sent):
            self._upload.send(self._host)
            self._sent[:] = self._host
        self._plays[*self._step.size(rows, columns), kind]()
        return self._download.fetch()

    def results(self, ticket: int) -> NDArray[np.float64]:
        """Return what a step drew, ``[slots, RESULTS]``; waits for no later one."""
        return self._download.wait(ticket)

    def close(self) -> None:
        """Forget all steps, and give all pages back; nothing can be launched any more."""
        self._plays.clear()
        for slot in range(len(self.cache.lengths)):
            self.cache.rewind(slot, 0)

    def _is_fused(self, kind: ChainKind) -> bool:
        """Return whether one kernel draws the rows of a kind."""
        return kind is not FULL and self._kernels.draws

    def _function(self, rows: int, columns: int, kind: ChainKind) -> Callable[[], None]:
        """Return the step of the first rows, to be recorded."""
        model, stop_token, state = self._model, self._stop_token, self.state.first(rows)
        light = None if kind is PLAIN else self.light[:rows]
        chain: Chain | None = None
        if not self._is_fused(kind):
            chain = Chain(
                kind, rows, vocab_size=self._vocab_size, stop_token=stop_token,
                device=self.first_hidden.device,
            )  # fmt: skip
            chain.lie_in(self.tables[kind])
        guidance, plain = self.guidance[:rows], self.plain[:rows]
        results, own = self._results[:rows], self._own[:rows]
        first_hidden, first_attention = self.first_hidden[:rows], self.first_attention[:, :rows]
        strength, rescale = guidance.unbind(1)
        whole = self._pages[:rows]
        pages = whole[:, : columns // PAGE]

        def step() -> None:
            # A row without frames is not fed: what it writes is overwritten by its first frame.
            code, positions, places, seen, begins = self._kernels.begin(
                state.numbers, state.codes, state.lengths, state.stopped, state.seen, whole, PAGE
            )
            hidden, queries = self._step.run(
                model.embed_response(code[:, None], 0), positions, places, seen, pages
            )
            hidden = torch.where(begins[:, None], first_hidden, hidden)
            logits = model.logits(hidden, 0)
            if chain is None:
                operators.draw(
                    logits, state.numbers, guidance, state.avoid, plain, state.codes,
                    state.lengths, state.stopped, results, stop_token, light,
                )  # fmt: skip
                return
            partner = state.number(Host.PARTNER)
            null = logits.index_select(0, partner)
            moved = guide(logits[:, None], null[:, None], strength, rescale)[:, 0]
            guided = torch.where((partner != own)[:, None], moved, logits)
            attention = None
            if kind.reads_attention:
                found = self._step.attention(queries, seen, pages)
                attention = _first_or(first_attention, begins, found)
            drawn = state.draw(chain, state.penalised(guided), attention, stop_token)
            results[:, 0].copy_(drawn.codes)
            results[:, 1].copy_(log_prob_of(sanitise(logits), drawn.codes))
            results[:, 2].copy_(logits.isnan().any(-1) | null.isnan().any(-1))

        return step


def _first_or(first: Tensor, begins: Tensor, found: AttentionStatistics) -> AttentionStatistics:
    """Return the statistics ``first`` ``[4, B]`` in rows that begin, else those found."""
    names: Sequence[str] = ("entropy", "varentropy", "agreement", "strength")
    return AttentionStatistics(
        *(
            torch.where(begins, column, getattr(found, name))
            for column, name in zip(first, names, strict=True)
        )
    )
