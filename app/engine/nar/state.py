"""The NAR levels of one utterance: their conditions, what is known of them, what is to be sampled.

Where frames see no later block, each level keeps its keys and values: a window is a chunk, and a
stream costs no more than one pass over the whole. Models whose frames all see each other were
trained to see the whole utterance, and nothing of one pass can be reused in the next: an utterance
is one window, or for sound before its end (`nar_window_frames`) each is sampled in passes over the
window, some frames before it and some after it. Those before it are sampled already. Of those after
it only level 0 is known: their NAR levels are sampled along, are seen by the levels above, and are
sampled again in their own window.
"""

import sys
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from itertools import repeat
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from app.engine.nar.chunks import Window, Windows, chunks_of
from app.engine.utterance import TextGrowth, UtteranceSpec
from models.prefix_cache import PrefixCache, Read, SlotPrefix, one_by_one
from models.stack.paged_cache import PagedCache
from models.stack.slot_cache import SlotCache
from models.valle import Valle
from samplers.knobs.features import is_guided
from samplers.nar import NarKind, kind_of, pack_rows, row_of, sample_nar
from samplers.ops.guidance import guide_frames
from samplers.ops.rows import within

Feed = Callable[[int, Tensor], Tensor]
"""The logits ``[R, T, V]`` of a level, given the codes ``[R, T, K]`` of which the lower levels are
known; see `models.valle`."""


class ChunkRows(NamedTuple):
    """R sequences of the next T frames of some utterances: one each, and with guidance one more."""

    # ``[R, T, K]`` int64, codes that are not sampled, level 0 among them; -1 elsewhere
    known_codes: Tensor
    knobs: Tensor  # ``[R, K - 1, 6]`` int64 of `samplers.nar.pack_rows`
    frame: Tensor  # ``[R]`` int64, index of the first frame in its utterance
    owner: Tensor  # ``[R]`` int64, the row whose codes each is fed
    partner: Tensor  # ``[R]`` int64, the row that guides each; itself: none
    guidance: Tensor  # ``[R, 2]`` float64, strength and rescale


class SampleKind(NamedTuple):
    """What any of some rows needs; the others are sampled the same with it, only slower."""

    guided: bool  # whether rows have partners
    kept: bool  # whether codes of NAR levels are known
    levels: Sequence[NarKind]  # of each NAR level that is sampled


def sample_chunk(rows: ChunkRows, feed: Feed, codebooks: Tensor, kind: SampleKind) -> Tensor:
    """Return the codes ``[R, T, K]`` of some frames, level by level; -1 in levels not sampled.

    ``codebooks [K, V, D]`` are the codec's, for `nar_decision="mean"`; ``kind`` says what any row
    needs.
    """
    known = rows.known_codes.index_select(0, rows.owner) if kind.guided else rows.known_codes
    codes = known.clone()
    for level, own in enumerate(kind.levels, start=1):
        logits = feed(level, codes)
        if kind.guided:
            logits = _guided(logits, rows)
        sampled = sample_nar(logits, rows.knobs[:, level - 1], rows.frame, codebooks[level], own)
        if kind.guided:
            sampled = sampled.index_select(0, rows.owner)
        if kind.kept:
            sampled = torch.where(known[..., level] >= 0, known[..., level], sampled)
        codes[..., level].copy_(sampled)
    return codes


def _guided(logits: Tensor, rows: ChunkRows) -> Tensor:
    """Guide rows by their partners."""
    null = logits.index_select(0, rows.partner)
    moved = guide_frames(logits, null, *rows.guidance.float().unbind(1))
    own = torch.arange(len(logits), device=logits.device)
    return torch.where((rows.partner != own)[:, None, None], moved, logits)


class NarState:
    """Levels 1 and up of one utterance, as its frames of level 0 come.

    Args:
        codebooks: ``[K, V, D]``, the codec's, for `nar_decision="mean"`.
        read: Reads prefixes; None: one after the other.
        kept_levels: Levels of a frame's codes, if all of them are `UtteranceSpec.kept`.
    """

    def __init__(
        self,
        model: Valle,
        codebooks: Tensor,
        inputs: UtteranceSpec,
        prefixes: PrefixCache,
        read: Read | None = None,
        kept_levels: int | None = None,
    ) -> None:
        params = inputs.params
        config = model.config
        self.inputs = inputs
        self._model = model
        self._codebooks = codebooks
        sampled = min(params.nar_levels, config.levels - 1)
        self.count = kept_levels or 1 + sampled  # levels of a frame's codes, level 0 included
        guided = is_guided(params, "nar") and sampled > 0
        self.conditions = 1 + guided  # 2 with guidance, else 1
        # ``[n]`` int64, of the frames that have come
        self.ar_codes = torch.zeros(0, dtype=torch.int64)
        # ``[T, count]`` int64, of the frames that are sampled; on the host if they were sampled
        # elsewhere
        self.codes = torch.zeros(0, self.count, dtype=torch.int64, device=codebooks.device)
        # ``[K - 1, 6]`` int64 of `samplers.nar.pack_rows`
        self.knobs = pack_rows([
            row_of(
                params, seed=inputs.seed, utterance=inputs.utterance, level=level,
                vocab_size=config.codes,
            )
            for level in range(1, config.levels)
        ])  # fmt: skip
        # Strength and rescale
        self.guidance = within(params.nar_cfg_strength), params.nar_cfg_rescale
        kinds = [kind_of(params, level) for level in range(1, 1 + sampled)]
        self.kind = SampleKind(guided, inputs.kept is not None, kinds)
        self._growths = deque[TextGrowth]()  # that no window was sampled with
        self._cached = prefixes
        self._read = read or one_by_one(model)
        make = (inputs.prefix, inputs.null_prefix)[: self.conditions]
        first = [one(model, 1) for one in make] if sampled else []
        self._prefixes = {
            level: [one.at_level(level) for one in first] for level in range(1, 1 + sampled)
        }
        self._cache: SlotCache | None = None
        if config.nar_mask == "full" and sampled:
            shape = params.nar_left_context_frames, params.nar_lookahead_frames
            self._windows = Windows(repeat(params.nar_window_frames or sys.maxsize), *shape)
            return
        self._windows = chunks_of(config.block_frames)
        if sampled:
            own = [prefix for conditions in self._prefixes.values() for prefix in conditions]
            most = max(map(len, own)) + inputs.max_frames + inputs.spare
            self._cache = prefixes.new_cache(len(own), most)
            keys = (inputs.voice, inputs.null)
            wanted = [
                SlotPrefix(prefix, self._slot(level, condition), keys[condition])
                for level, conditions in self._prefixes.items()
                for condition, prefix in enumerate(conditions)
            ]
            prefixes.read(wanted, self._cache, self._read)

    @property
    def is_light(self) -> bool:
        """Whether all levels are greedy, over all codes and without guidance."""
        return not self.kind.guided and all(one.is_light for one in self.kind.levels)

    def cut(
        self, ar_codes: Tensor, *, ended: bool, grown: Sequence[TextGrowth] = ()
    ) -> list[Window]:
        """Take the next final frames ``[n]`` of level 0; return what can be sampled then, in order.

        ``grown`` is what more of the text they were drawn with.

        At the end at least one window is returned, empty if no frames are left, so that the codec
        is flushed.
        """
        self.ar_codes = torch.cat([self.ar_codes, ar_codes])
        self._growths += grown
        count = len(self.ar_codes)
        windows = self._windows.up_to(count, ended=ended)
        return windows or [Window(count, count, count, count)] * ended

    @torch.inference_mode()
    def sample(self, window: Window) -> None:
        """Sample what comes next."""
        first, start, end, _ = window
        if start == end:
            return
        self.grow(window)
        conditions = self.conditions
        device = self._codebooks.device

        def each(number: int) -> Tensor:
            return torch.full((conditions,), number, device=device)

        known_codes = torch.from_numpy(self.known_codes_of(window))
        if first < start:
            known_codes[: start - first, : self.count] = self.codes[first:start]
        rows = ChunkRows(
            known_codes[None].to(device),
            torch.from_numpy(self.knobs).to(device).expand(conditions, -1, -1),
            frame=each(first), owner=each(0), partner=each(conditions - 1),
            guidance=torch.tensor([self.guidance] * conditions, dtype=torch.float64).to(device),
        )  # fmt: skip
        kind = self.kind._replace(kept=self.kind.kept or first < start)
        codes = sample_chunk(rows, partial(self._feed, first), self._codebooks, kind)[0]
        own = codes[start - first : end - first, : self.count]
        self.codes = torch.cat([self.codes, own])

    @torch.inference_mode()
    def grow(self, window: Window) -> None:
        """Go on with as much of the text as the last frame of a window was drawn with.

        Frames that are sampled keep their keys and values.
        """
        before = self.inputs
        while self._growths and self._growths[0].frame < window.last:
            self.inputs = self.inputs.grown(self._growths.popleft())
        if self.inputs is before or not self._prefixes:
            return
        text = self.inputs.prefix(self._model, 1)
        old = len(self._prefixes[1][0])
        for level, prefixes in self._prefixes.items():
            prefixes[0] = text.at_level(level)
        if (cache := self._cache) is None:
            return
        key = self.inputs.voice
        wanted = [
            SlotPrefix(prefixes[0], self._slot(level, 0), key)
            for level, prefixes in self._prefixes.items()
        ]
        self._cached.replace(wanted, cache, self._read, old=old)

    def known_codes_of(self, window: Window) -> NDArray[np.int64]:
        """Return the codes ``[n, K]`` of a window's frames that are not sampled, or -1."""
        ar_codes = self.ar_codes[window.first : window.last]
        kept = self.inputs.kept
        known_codes = np.full((len(ar_codes), self._model.config.levels), -1, np.int64)
        if kept is not None:
            codes = kept.codes[window.first : window.last]
            known_codes[: len(codes), : codes.shape[1]] = codes
        known_codes[:, 0] = ar_codes.numpy()
        return known_codes

    def reserve(self, condition: int, count: int) -> tuple[int, int, list[Sequence[int]]]:
        """Make room for the next frames in the sequences of one condition, which lie in pages.

        Returns position id of the first of the frames, positions held, and the pages of each level
        that is sampled.
        """
        if (cache := self._cache) is None:
            return 0, 0, []
        assert isinstance(cache, PagedCache)
        prefix = self._prefixes[1][condition]
        sampled = len(self.codes)
        length = len(prefix) + sampled
        slots = [self._slot(level, condition) for level in self._prefixes]
        for slot in slots:
            cache.reserve(slot, length + count)
        return prefix.response_start + sampled, length, [cache.pages(slot) for slot in slots]

    def advance(self, codes: Tensor) -> None:
        """Take codes ``[n, count]`` that were sampled elsewhere, in the pages reserved for them."""
        self.codes = torch.cat([self.codes.cpu(), codes])
        if self._cache is not None:
            for slot in range(len(self._cache.lengths)):
                self._cache.advance(slot, len(codes))

    def _feed(self, first: int, level: int, codes: Tensor) -> Tensor:
        """Return the logits of some frames in each condition; see `Feed`."""
        model = self._model
        count = codes.shape[1]
        logits = list[Tensor]()
        for condition, prefix in enumerate(self._prefixes[level]):
            own = codes[condition]
            if self._cache is None:
                logits.append(model.nar_logits(prefix, own, level, start=first))
                continue
            begin = prefix.response_start + first
            hidden, _ = model.stack(level).extend(
                model.embed_response(own, level),
                torch.arange(begin, begin + count, device=codes.device),
                self._cache,
                self._slot(level, condition),
                model.ranks(level, model.response_blocks(first, count)),
            )
            logits.append(model.logits(hidden, level))
        return torch.stack(logits)

    def _slot(self, level: int, condition: int) -> int:
        return (level - 1) * self.conditions + condition
