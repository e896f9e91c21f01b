"""Prefixes of several levels read in one captured function, padded to one of a few lengths.

So are frames of level 0 that are known. What sees nothing after it is read piece by piece.
Operator by operator a prefix costs a host some hundred launches, and each level of the sound
as many again. Here what differs from call to call goes up as one table: of each position its symbol
and its position id, of each level how many positions there are, and pages. Padding is written to
the pool's page for it and seen by nobody.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain, pairwise
from typing import Final, NamedTuple, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gpu.graphs import Capture, Replay
from gpu.transfers import DEPTH, Upload
from models.config import ModelConfig
from models.prefix import MARKS, Prefix
from models.stack.paged_cache import PAGE, PagedCache, PagePool
from models.stack.slot_cache import SlotCache
from models.stack.taps import NO_TAPS, Taps
from models.valle import Valle

_ALIGNED: Final = 16
_COPIES: Final = 2
"""Of pages, for each level: of what is shared by those with the text, and by those without."""

PIECES: Final = (112, 256)
"""Positions that are read at once where none sees a later one: what is longer is several pieces.

A sentence, or a chunk of frames, and a usual prompt: reading fewer takes hardly less time.
"""


ReadPositions = tuple[Tensor, Tensor]
"""Hidden states and queries, as `models.stack.slot_cache.CachedPasses` returns them."""


class _Parts(NamedTuple):
    """Where each part of a level's row lies: positions held, new ones, and so on."""

    held: slice
    new: slice
    symbols: slice
    positions: slice
    reach: slice  # how many of the new positions each of them sees
    pages: slice
    copies: slice


def padded_lengths(config: ModelConfig, *, ar: bool) -> dict[bool, list[int]]:
    """Return the lengths of what is read at once, ascending: without the prompt, and with it."""
    prompted = "prom" in config.segments and config.max_prompt_frames > 0
    if ar and config.text_mask == "full":  # two texts at once, that of the prompt too
        texts = math.ceil(2 * (config.max_phonemes + 2) / _ALIGNED) * _ALIGNED
        return {False: sorted({*PIECES, texts})}
    if ar or config.nar_mask == "causal":
        # Of level 0 a prompt takes few operators, which are not worth graphs without them.
        return {prompted: [*PIECES]} | ({} if ar else {False: [*PIECES]})
    # Positions of one block, a text or all that is before it, see each other.
    text = config.max_phonemes + 2 + MARKS
    prompt = config.max_prompt_frames + MARKS
    found = {False: [text / 4, text / 2, text]} | ({True: [prompt]} if prompted else {})
    return {
        kind: [math.ceil(one / _ALIGNED) * _ALIGNED for one in lengths]
        for kind, lengths in found.items()
    }


class PrefillGraphRunner:
    """Reads prefixes of some levels, one of each at once. One thread only.

    It is a `models.prefix_cache.Read`, whose results last until it is called again.

    Args:
        levels: Level 0 alone, or NAR levels.
        positions: The most of a sequence; None: the most of a prefix without frames.
        taps: What it gives of some layers.
    """

    @torch.inference_mode()
    def __init__(
        self,
        model: Valle,
        pool: PagePool,
        levels: Sequence[int],
        capture: Capture,
        positions: int | None = None,
        taps: Taps = NO_TAPS,
    ) -> None:
        config = model.config
        weight = model.separator
        self._model = model
        self._levels = [*levels]
        self._taps = taps
        self._passes = model.transformer.paged(pool)
        self._lengths = padded_lengths(config, ar=0 in levels)
        mask = config.text_mask if 0 in levels else config.nar_mask
        self._causal = mask == "causal"
        most = max(chain(*self._lengths.values()))
        rows = len(self._levels)
        positions = positions or config.max_prompt_frames + config.max_phonemes + 2 + MARKS
        ends = np.cumsum([1, 1, *[most] * 3, math.ceil(positions / PAGE), 2 * _COPIES]).tolist()
        self._parts = _Parts(*(slice(*both) for both in pairwise([0, *ends])))
        self._idle = np.zeros((rows, ends[-1]), np.int64)
        self._idle[:, self._parts.new] = 1
        self._idle[:, self._parts.pages] = self._idle[:, self._parts.copies] = pool.padding
        self._table = torch.zeros(self._idle.shape, dtype=torch.int64, device=weight.device)
        # Nobody waits between the pieces of two utterances, each with the text and without.
        self._upload = Upload(self._table, DEPTH + 4 * math.ceil(positions / PIECES[-1]))
        self._upload.send(self._idle)
        self._symbols = model.symbols()
        self._prompt = self._table.new_zeros(config.max_prompt_frames, config.levels)
        self._hidden = weight.new_zeros(rows, most, taps.width(config.width))
        asked = len(taps.queries)
        self._queries = weight.new_zeros(asked, rows, most, config.heads, config.head_dim)
        # Largest first: the others then find all the memory that they need in the shared pool.
        self._replays: dict[tuple[bool, int], Replay] = {
            (with_prompt, length): capture(self._function(length, with_prompt=with_prompt))
            for with_prompt, lengths in self._lengths.items()
            for length in reversed(lengths)
        }

    def close(self) -> None:
        """Forget what was captured, which refers to this; nothing can be read any more."""
        self._replays.clear()

    @torch.inference_mode()
    def __call__(
        self, prefixes: Sequence[Prefix], places: Sequence[tuple[SlotCache, int]]
    ) -> Sequence[tuple[Tensor, Tensor]]:
        """Append each prefix to a slot; see `models.prefix_cache.Read`.

        One that is too long to be read at once, and has to be, is launched as usual in level 0.
        Raises ValueError if it is of another.
        """
        # By length, too, so that a level's bits do not depend on which others are read.
        batches: dict[tuple[bool, int, int, int], list[int]] = {}
        seen: Counter[tuple[int, int]] = Counter()
        for at, one in enumerate(prefixes):
            has_prompt = bool((one.numbers[0] >= len(self._symbols)).any())
            kind = has_prompt or False not in self._lengths
            seen[one.level, len(one)] += 1
            alike = kind, len(one), has_prompt * id(one.prompt), seen[one.level, len(one)]
            batches.setdefault(alike, []).append(at)
        found: list[list[Callable[[], ReadPositions]]] = [[] for _ in prefixes]
        for (with_prompt, count, prompted, _), batch in batches.items():
            most = self._lengths[with_prompt][-1]
            own = [prefixes[at] for at in batch]
            if not self._causal and _cuts_a_block(own[0], most):
                if 0 not in self._levels:
                    raise ValueError(f"{count} positions that see each other, at most {most}")
                for at in batch:
                    hidden, queries = self._model.read(prefixes[at], *places[at], self._taps)
                    found[at].append(partial(_itself, hidden, queries))
                continue
            if prompted and (prompt := own[0].prompt) is not None:
                self._prompt[: len(prompt)].copy_(prompt)
            for begin in range(0, count, most):
                pieces = [one[begin : begin + most] for one in own]
                rows = self._read(with_prompt, pieces, [places[at] for at in batch])
                for at, row in zip(batch, rows, strict=True):
                    part = partial(self._of_row, row, len(pieces[0]))
                    if len(batches) > 1 or count > most:  # the next is read to the same place
                        part = partial(_itself, *(one.clone() for one in part()))
                    found[at].append(part)
        return _OnDemand(found)

    def _of_row(self, row: int, count: int) -> ReadPositions:
        """Return what was read last as a row, of so many positions."""
        return self._hidden[row, :count], self._queries[:, row, :count]

    def _read(
        self,
        with_prompt: bool,
        prefixes: Sequence[Prefix],
        places: Sequence[tuple[SlotCache, int]],
    ) -> Sequence[int]:
        """Read prefixes of one length, which a graph has, of different levels; return rows."""
        host = self._idle.copy()
        parts = self._parts
        count = len(prefixes[0])
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
            own[parts.held] = cache.lengths[slot]
            own[parts.new] = count
            own[parts.symbols][:count], own[parts.positions][:count] = one.numbers[:2]
            own[parts.reach][:count] = self._reach(one)
            own[parts.pages][: len(pages)] = pages
        self._upload.send(host)
        length = next(one for one in self._lengths[with_prompt] if one >= count)
        self._replays[with_prompt, length]()
        for cache, slot in paged:
            cache.advance(slot, count)
        return rows

    def _reach(self, prefix: Prefix) -> NDArray[np.int64]:
        """Return how many positions each sees, itself among them: see `Valle.ranks`."""
        if self._causal:
            return np.arange(1, len(prefix) + 1)
        blocks = prefix.numbers[2]
        return np.searchsorted(blocks, blocks, side="right")

    def _function(self, length: int, *, with_prompt: bool) -> Replay:
        """Return what reads up to so many positions of each level, to be captured."""
        model = self._model
        passes = self._passes
        parts = self._parts
        table = self._table
        rows = len(table)
        by_page = passes.pool.by_page

        def read() -> None:
            copies = table[:, parts.copies].reshape(-1, 2)
            by_page.index_copy_(1, copies[:, 1], by_page.index_select(1, copies[:, 0]))
            symbols = table[:, parts.symbols][:, :length]
            counts = table[:, parts.new][:, 0]
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
            x = model.transformer.entered(x, positions.flatten())
            layout = passes.layout(positions, table[:, parts.held][:, 0], counts, reach)
            hidden, queries = passes.run(x, layout(table[:, parts.pages]), self._taps)
            self._hidden[:, :length].copy_(hidden.view(rows, length, -1))
            self._queries[:, :, :length].copy_(queries.view(-1, rows, length, *queries.shape[2:]))

        return read


class _OnDemand(Sequence[ReadPositions]):
    """What was read, made when it is asked for: of NAR levels nobody does."""

    def __init__(self, parts: Sequence[Sequence[Callable[[], ReadPositions]]]) -> None:
        self._parts = parts

    def __len__(self) -> int:
        return len(self._parts)

    @overload
    def __getitem__(self, at: int) -> ReadPositions: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[ReadPositions]: ...
    def __getitem__(self, at: int | slice) -> ReadPositions | Sequence[ReadPositions]:
        if isinstance(at, slice):
            return _OnDemand(self._parts[at])
        found = [part() for part in self._parts[at]]
        if len(found) == 1:
            return found[0]
        hidden, queries = zip(*found, strict=True)
        return torch.cat(hidden), torch.cat(queries, 1)


def _itself(hidden: Tensor, queries: Tensor) -> ReadPositions:
    return hidden, queries


def _cuts_a_block(prefix: Prefix, most: int) -> bool:
    """Return whether positions that see each other would be read in two pieces."""
    ranks = prefix.numbers[2]
    return any(ranks[at] == ranks[at - 1] for at in range(most, len(ranks), most))
