"""The finer levels of one utterance: their conditions, what is known of them, what is to be drawn.

There are two kinds, by what a model's frames see. Where they see no later block, each level keeps
its keys and values, and a stream costs no more than one pass over the whole. Models whose frames
all see each other were trained to see the whole utterance, and nothing of one pass can be reused
in the next.
"""

import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from app.engine.sound.chunks import Chunks
from app.engine.sound.drawing import ChunkRows, DrawKind, Feed, draw_chunk
from app.engine.utterance import UtteranceInput
from models.prefix import Prefix
from models.prefix_cache import PrefixCache, Read, SlotPrefix, one_by_one
from models.stack.paged_cache import PagedCache
from models.valle import Valle
from samplers.knobs.features import is_guided
from samplers.nar import kind_of, pack, row_of
from samplers.ops.bounds import within


class Window(NamedTuple):
    """Frames ``start`` to ``end`` (excluded) are drawn in passes over ``first`` to ``last``."""

    first: int
    start: int
    end: int
    last: int


Work = Tensor | Window | None
"""What is drawn at once: the level 0 ``[n]`` of a chunk, a window, or nothing more."""


class Levels(ABC):
    """Levels 1 and up of one utterance, as its frames of level 0 come.

    Attributes:
        count: Levels of a frame's codes, level 0 included.
        knobs: ``[K - 1, 6]`` int64 of `samplers.nar.pack`.
        guidance: Strength and rescale.
    """

    def __init__(self, model: Valle, codebooks: Tensor, inputs: UtteranceInput) -> None:
        params, config = inputs.params, model.config
        self.inputs, self._model, self._codebooks = inputs, model, codebooks
        self.count = 1 + min(params.nar_levels, config.levels - 1)
        guided = is_guided(params, "nar")
        self.conditions = 1 + guided  # 2 with guidance, else 1
        self._prefixes = {level: self._prefixes_of(level) for level in range(1, self.count)}
        self._chunks = Chunks(config.block_frames)
        self.knobs = pack([
            row_of(
                params, seed=inputs.seed, utterance=inputs.utterance, level=level,
                vocab_size=config.codes,
            )
            for level in range(1, config.levels)
        ])  # fmt: skip
        self.guidance = within(params.nar_cfg_strength), params.nar_cfg_rescale
        kinds = [kind_of(params, level) for level in range(1, self.count)]
        self.kind = DrawKind(guided, inputs.kept is not None, kinds)
        device = model.separator.device
        self._rows = ChunkRows(
            given=torch.zeros(0),
            knobs=torch.from_numpy(self.knobs).to(device).expand(self.conditions, -1, -1),
            frame=torch.zeros(self.conditions, dtype=torch.int64, device=device),
            owner=torch.zeros(self.conditions, dtype=torch.int64, device=device),
            partner=torch.full((self.conditions,), self.conditions - 1, device=device),
            guidance=torch.tensor(self.guidance, dtype=torch.float64).to(device).expand(
                self.conditions, -1
            ),
        )  # fmt: skip

    @property
    def is_light(self) -> bool:
        """Whether all levels are greedy, over all codes and without guidance."""
        return not self.kind.guided and all(one.is_light for one in self.kind.levels)

    @property
    def no_codes(self) -> Tensor:
        """``[0, count]`` int64, the codes of no frames."""
        return torch.zeros(0, self.count, dtype=torch.int64, device=self._model.separator.device)

    @abstractmethod
    def cut(self, level_0: Tensor, *, ended: bool) -> list[Work]:
        """Take the next final frames ``[n]`` of level 0; return what can be drawn then, in order.

        When the frames have ended, the last work is what is left, often nothing.
        """

    @abstractmethod
    def draw(self, work: Work) -> list[Tensor]:
        """Draw what comes next; return the chunks ``[m, count]`` int64 that it completed."""

    def given(self, first: int, level_0: Tensor) -> NDArray[np.int64]:
        """Return the codes ``[n, K]`` of frames that are not drawn, -1 elsewhere."""
        given = np.full((len(level_0), self._model.config.levels), -1, np.int64)
        kept = self.inputs.kept
        if kept is not None and first < len(kept.codes):
            known = kept.codes[first : first + len(level_0)].numpy()
            given[: len(known), : known.shape[1]] = known
        given[:, 0] = level_0.numpy()
        return given

    def _draw(self, first: int, given: NDArray[np.int64], feed: Feed, kind: DrawKind) -> Tensor:
        """Return the codes ``[n, count]`` of frames from ``first`` on."""
        rows = self._rows._replace(
            given=torch.from_numpy(given)[None].to(self._codebooks.device),
            frame=torch.full_like(self._rows.frame, first),
        )
        return draw_chunk(rows, feed, self._codebooks, kind)[0, :, : self.count]

    def _prefixes_of(self, level: int) -> list[Prefix]:
        prefixes = [self.inputs.prefix(self._model, level)]
        if self.conditions == 2:
            prefixes.append(self.inputs.null_prefix(self._model, level))
        return prefixes


class CachedLevels(Levels):
    """Levels of which each chunk can be drawn once its last frame of level 0 has come.

    `frames` are drawn.
    """

    def __init__(
        self,
        model: Valle,
        codebooks: Tensor,
        inputs: UtteranceInput,
        prefixes: PrefixCache,
        read: Read | None = None,
    ) -> None:
        super().__init__(model, codebooks, inputs)
        self.frames = 0
        if self._prefixes:
            own = [prefix for conditions in self._prefixes.values() for prefix in conditions]
            self._cache = prefixes.new_cache(len(own), max(map(len, own)) + inputs.max_frames)
            keys = (inputs.voice, inputs.null)
            wanted = [
                SlotPrefix(prefix, self._slot(level, condition), keys[condition])
                for level, conditions in self._prefixes.items()
                for condition, prefix in enumerate(conditions)
            ]
            prefixes.read(wanted, self._cache, read or one_by_one(model))

    def cut(self, level_0: Tensor, *, ended: bool) -> list[Work]:
        """Return the chunks that the frames complete; see `Levels.cut`."""
        chunks: list[Work] = [*self._chunks.push(level_0)]
        return [*chunks, self._chunks.rest()] if ended else chunks

    @torch.inference_mode()
    def draw(self, work: Work) -> list[Tensor]:
        """Draw the next chunk; see `Levels.draw`."""
        assert isinstance(work, Tensor)
        if not len(work):
            return [self.no_codes]
        codes = self._draw(self.frames, self.given(self.frames, work), self._feed, self.kind)
        self.frames += len(work)
        return [codes]

    def reserve(self, condition: int, count: int) -> tuple[int, int, list[Sequence[int]]]:
        """Make room for the next frames in the sequences of one condition, which lie in pages.

        Returns position id of the first of the frames, positions held, and the pages of each level.
        """
        cache = self._cache
        assert isinstance(cache, PagedCache)
        prefix = self._prefixes[1][condition]
        length = len(prefix) + self.frames
        slots = [self._slot(level, condition) for level in self._prefixes]
        for slot in slots:
            cache.reserve(slot, length + count)
        return prefix.response_start + self.frames, length, [cache.pages(slot) for slot in slots]

    def advance(self, count: int) -> None:
        """Count frames that were drawn elsewhere, in the pages reserved for them."""
        self.frames += count
        for slot in range(len(self._cache.lengths)):
            self._cache.advance(slot, count)

    def _feed(self, level: int, codes: Tensor) -> Tensor:
        model, count = self._model, codes.shape[1]
        ranks = model.ranks(level, model.response_blocks(self.frames, count))
        logits = []
        for condition, prefix in enumerate(self._prefixes[level]):
            begin = prefix.response_start + self.frames
            hidden = model.transformer.extend(
                model.embed_response(codes[condition], level),
                torch.arange(begin, begin + count, device=codes.device),
                self._cache,
                self._slot(level, condition),
                ranks,
            )
            logits.append(model.logits(hidden, level))
        return torch.stack(logits)

    def _slot(self, level: int, condition: int) -> int:
        return (level - 1) * self.conditions + condition


class Windows:
    """Cuts an utterance into windows: a function of the frame index and of where it ends.

    With ``frames`` 0 the whole utterance is one.
    """

    def __init__(self, frames: int, left_context: int, lookahead: int) -> None:
        self._frames = frames or sys.maxsize
        self._left_context, self._lookahead = left_context, lookahead
        self._start = 0

    def up_to(self, count: int, *, ended: bool) -> Iterator[Window]:
        """Yield the windows that ``count`` frames complete, and that were not yielded before."""
        while self._start < count:
            end = self._start + self._frames
            if not ended and count < end + self._lookahead:
                return
            end = min(end, count)
            yield Window(
                max(0, self._start - self._left_context),
                self._start,
                end,
                min(end + self._lookahead, count),
            )
            self._start = end


class WindowedLevels(Levels):
    """Levels that are drawn window by window, or all at the end.

    For sound before the end (`nar_window_frames`), each window of frames is drawn in passes over
    the window, some frames before it and some after it. Those before it are drawn already. Of those
    after it only level 0 is known: their finer levels are drawn along, are seen by the levels
    above, and are drawn again in their own window.
    """

    def __init__(self, model: Valle, codebooks: Tensor, inputs: UtteranceInput) -> None:
        super().__init__(model, codebooks, inputs)
        params = inputs.params
        self._windows = Windows(
            params.nar_window_frames, params.nar_left_context_frames, params.nar_lookahead_frames
        )
        self._level_0 = torch.zeros(0, dtype=torch.int64)
        self._codes = self.no_codes  # of the windows drawn so far
        self._chunks.push(self._codes)

    def cut(self, level_0: Tensor, *, ended: bool) -> list[Work]:
        """Return the windows that the frames complete; see `Levels.cut`."""
        self._level_0 = torch.cat([self._level_0, level_0])
        windows: list[Work] = [*self._windows.up_to(len(self._level_0), ended=ended)]
        return [*windows, None] if ended else windows

    @torch.inference_mode()
    def draw(self, work: Work) -> list[Tensor]:
        """Draw the next window; see `Levels.draw`."""
        if work is None:
            return [self._chunks.rest()]
        assert isinstance(work, Window)
        first, start, end, last = work
        given = self.given(first, self._level_0[first:last])
        if start > first:
            given[: start - first, : self.count] = self._codes[first:start].cpu().numpy()

        def feed(level: int, codes: Tensor) -> Tensor:
            return torch.stack([
                self._model.nar_logits(prefix, codes[condition], level, start=first)
                for condition, prefix in enumerate(self._prefixes[level])
            ])

        codes = self._draw(first, given, feed, self.kind._replace(kept=True))
        codes = codes[start - first : end - first]
        self._codes = torch.cat([self._codes, codes])
        return self._chunks.push(codes)


def levels_of(
    model: Valle,
    codebooks: Tensor,
    inputs: UtteranceInput,
    prefixes: PrefixCache,
    read: Read | None = None,
) -> CachedLevels | WindowedLevels:
    """Return the finer levels of an utterance, of the kind that the model's NAR mask allows.

    ``codebooks [K, V, D]`` are the codec's, for `nar_decision="mean"`; ``read`` reads prefixes.
    """
    if model.config.nar_mask == "full":
        return WindowedLevels(model, codebooks, inputs)
    return CachedLevels(model, codebooks, inputs, prefixes, read)
