"""Prefixes of several levels read in one recorded function, padded to one of a few lengths.

Read operator by operator, a prefix costs a host some hundred launches, and each level of the sound
as many again. Here what differs from call to call goes up as one table: of each position its symbol
and its position id, of each level how many positions there are, and pages. Padding is written to
the pool's page for it and seen by nobody.
"""

import math
from collections import Counter
from collections.abc import Sequence
from itertools import chain, pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from models.config import ModelConfig
from models.cuda.graphs import Play, Record
from models.cuda.transfers import Upload
from models.prefix import MARKS, Prefix
from models.prefix_cache import one_by_one
from models.stack.paged_cache import PAGE, PagedCache, PagePool
from models.stack.slot_cache import SlotCache
from models.valle import Valle

_ALIGNED: Final = 16
_COPIES: Final = 2
"""Of pages, for each level: of what is shared by those with the text, and by those without."""


class _Parts(NamedTuple):
    """Where each part of a level's row lies: positions held, new ones, and so on."""

    held: slice
    new: slice
    symbols: slice
    positions: slice
    reach: slice  # how many of the new positions each of them sees
    pages: slice
    copies: slice


def padded_lengths(config: ModelConfig, *, with_prompt: bool) -> list[int]:
    """Return the lengths of what is read at once, ascending: with the prompt, or without."""
    most, shares = config.max_phonemes + 2 + MARKS, [4, 2, 1]
    if with_prompt:
        segments = [one for one in config.segments if one in {"prom", "phn"}]
        if "prom" not in segments or not config.max_prompt_frames:
            return []
        if segments[0] == "prom":  # it is read by itself, before the text
            most, shares = MARKS, [1]
        most += config.max_prompt_frames
    return [math.ceil(most / share / _ALIGNED) * _ALIGNED for share in shares]


class RecordedPrefixes:
    """Reads prefixes of some levels, one of each at once. One thread only.

    It is a `models.prefix_cache.Read`, whose results are those of the last position alone, until it
    is called again. What is longer, or not of these levels, is read operator by operator.
    """

    @torch.inference_mode()
    def __init__(
        self,
        model: Valle,
        pool: PagePool,
        levels: Sequence[int],
        record: Record,
    ) -> None:
        config, weight = model.config, model.separator
        self._model, self._levels = model, [*levels]
        self._passes, self._one_by_one = model.transformer.paged(pool), one_by_one(model)
        self._lengths = {one: padded_lengths(config, with_prompt=one) for one in (True, False)}
        most, rows = max(chain(*self._lengths.values())), len(self._levels)
        whole = config.max_prompt_frames + config.max_phonemes + 2 + MARKS
        ends = np.cumsum([1, 1, *[most] * 3, math.ceil(whole / PAGE), 2 * _COPIES]).tolist()
        self._parts = _Parts(*(slice(*both) for both in pairwise([0, *ends])))
        self._idle = np.zeros((rows, ends[-1]), np.int64)
        self._idle[:, self._parts.new] = 1
        self._idle[:, self._parts.pages] = self._idle[:, self._parts.copies] = pool.padding
        self._table = torch.zeros(self._idle.shape, dtype=torch.int64, device=weight.device)
        self._upload = Upload(self._table)
        self._upload.send(self._idle)
        self._symbols = model.symbols()
        self._prompt = self._table.new_zeros(config.max_prompt_frames, config.levels)
        self._hidden = weight.new_zeros(rows, config.width)
        self._queries = weight.new_zeros(rows, config.heads, config.head_dim)
        # Largest first: the others then find all the memory that they need in the shared pool.
        self._plays: dict[tuple[bool, int], Play] = {
            (with_prompt, length): record(self._function(length, with_prompt=with_prompt))
            for with_prompt, lengths in self._lengths.items()
            for length in reversed(lengths)
        }

    def close(self) -> None:
        """Forget what was recorded, which refers to this; nothing can be read any more."""
        self._plays.clear()

    @torch.inference_mode()
    def __call__(
        self, prefixes: Sequence[Prefix], places: Sequence[tuple[SlotCache, int]]
    ) -> Sequence[tuple[Tensor, Tensor]]:
        """Append each prefix to a slot; see `models.prefix_cache.Read`."""
        # By length, too, so that a level's bits do not depend on which others are read.
        batches: dict[tuple[Any, ...], list[int]] = {}
        seen: Counter[tuple[int, int]] = Counter()
        for at, one in enumerate(prefixes):
            play = self._play_of(one)
            seen[one.level, len(one)] += 1
            alike = play, len(one), id(one.prompt), seen[one.level, len(one)]
            batches.setdefault(alike if play else (None, at), []).append(at)
        found: dict[int, tuple[Tensor, Tensor]] = {}
        for (play, *_), batch in batches.items():
            own = [prefixes[at] for at in batch], [places[at] for at in batch]
            read = self._one_by_one(*own) if play is None else self._read(play, *own)
            if len(batches) > 1:
                read = [(hidden.clone(), queries.clone()) for hidden, queries in read]
            found.update(zip(batch, read, strict=True))
        return [found[at] for at in range(len(prefixes))]

    def _play_of(self, prefix: Prefix) -> tuple[bool, int] | None:
        """Return which recording reads a prefix; None if none does."""
        with_prompt = bool((prefix.numbers[0] >= len(self._symbols)).any())
        if prefix.is_begun or prefix.level not in self._levels:
            return None
        lengths = (one for one in self._lengths[with_prompt] if one >= len(prefix))
        return next(((with_prompt, length) for length in lengths), None)

    def _read(
        self,
        play: tuple[bool, int],
        prefixes: Sequence[Prefix],
        places: Sequence[tuple[SlotCache, int]],
    ) -> Sequence[tuple[Tensor, Tensor]]:
        """Read prefixes of one length and of different levels."""
        host, parts, count = self._idle.copy(), self._parts, len(prefixes[0])
        copies = np.full((_COPIES * len(host), 2), self._passes.pool.padding)
        due: list[tuple[int, int]] = []
        paged = [(cache, slot) for cache, slot in places if isinstance(cache, PagedCache)]
        for cache, slot in paged:
            cache.check_room(slot, count)
            cache.reserve(slot, cache.lengths[slot] + count)
        for cache, _ in paged:
            due += cache.take_copies(len(copies) - len(due))
        copies[: len(due)] = np.reshape(due, (-1, 2))
        host[:, parts.copies] = copies.reshape(len(host), -1)
        rows = [self._levels.index(one.level) for one in prefixes]
        for row, one, (cache, slot) in zip(rows, prefixes, paged, strict=True):
            pages = cache.pages(slot)
            own = host[row]
            own[parts.held], own[parts.new] = cache.lengths[slot], count
            own[parts.symbols][:count], own[parts.positions][:count] = one.numbers[:2]
            own[parts.reach][:count] = self._reach(one)
            own[parts.pages][: len(pages)] = pages
        if play[0] and (prompt := prefixes[0].prompt) is not None:
            self._prompt[: len(prompt)].copy_(prompt)
        self._upload.send(host)
        self._plays[play]()
        for cache, slot in paged:
            cache.advance(slot, count)
        return [(self._hidden[row, None], self._queries[row, None]) for row in rows]

    def _reach(self, prefix: Prefix) -> NDArray[np.int64]:
        """Return how many positions each sees, itself among them: see `Valle.ranks`."""
        if prefix.level == 0 or self._model.config.nar_mask == "causal":
            return np.arange(1, len(prefix) + 1)
        blocks = prefix.numbers[2]
        return np.searchsorted(blocks, blocks, side="right")

    def _function(self, length: int, *, with_prompt: bool) -> Play:
        """Return what reads up to so many positions of each level, to be recorded."""
        model, passes, parts, table = self._model, self._passes, self._parts, self._table
        rows, by_page = len(table), passes.pool.by_page
        last = torch.arange(rows, device=table.device) * length - 1

        def read() -> None:
            copies = table[:, parts.copies].reshape(-1, 2)
            by_page.index_copy_(1, copies[:, 1], by_page.index_select(1, copies[:, 0]))
            symbols, counts = table[:, parts.symbols][:, :length], table[:, parts.new][:, 0]
            if with_prompt:
                x = torch.cat([
                    torch.cat([self._symbols, model.embed_prompt(self._prompt, level)])[one]
                    for level, one in zip(self._levels, symbols, strict=True)
                ])
            else:
                x = self._symbols[symbols.flatten()]
            positions, reach = (
                table[:, part][:, :length] for part in (parts.positions, parts.reach)
            )
            layout = passes.layout(positions, table[:, parts.held][:, 0], counts, reach)
            hidden, queries = passes.run(x, layout(table[:, parts.pages]))
            self._hidden.copy_(hidden.index_select(0, last + counts))
            self._queries.copy_(queries.index_select(0, last + counts))

        return read
