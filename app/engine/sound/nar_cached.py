"""The finer levels of models whose frames see no later block: chunk by chunk, over a KV cache.

Each level has its own keys and values, so a stream costs no more than one pass over the whole
utterance and gives the codes of that pass, up to rounding.
"""

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from app.engine.sound.nar import FinerLevels
from app.engine.utterance import UtteranceInput
from models.prefix import Prefix
from models.prefix_cache import PrefixCache
from models.stack.fixed_extend import FixedExtend
from models.stack.paged_cache import PagedCache
from models.stack.slot_cache import SlotCache
from models.valle import Valle


class CachedLevels(FinerLevels):
    """Draws each chunk once its last frame of level 0 has come.

    Attributes:
        frames: How many are drawn.
    """

    def __init__(
        self,
        model: Valle,
        codebooks: Tensor,
        inputs: UtteranceInput,
        prefixes: PrefixCache,
        together: FixedExtend | None = None,
    ) -> None:
        """Prefill the prefixes of all levels.

        Args:
            model: On the device to use.
            codebooks: ``[K, V, D]`` vectors of the codec's codes, for `nar_decision="mean"`.
            inputs: What is spoken.
            prefixes: Cache of the keys and values that utterances share.
            together: Extends slots of the same pool; if given, the text is read for all levels in
                one pass.
        """
        super().__init__(model, codebooks, inputs)
        self.frames = 0
        if self._prefixes:
            self._cache = self._make_cache(prefixes)
            self._read_prefixes(prefixes, together)

    @torch.inference_mode()
    def push(self, level_0: Tensor, *, ended: bool = False) -> Iterator[list[Tensor]]:  # noqa: ARG002
        """Draw the chunks that the frames complete; see `FinerLevels.push`."""
        for chunk in self._chunks.push(level_0):
            yield [self._draw_chunk(chunk)]

    @torch.inference_mode()
    def rest(self) -> Tensor:
        """Draw the last chunk; see `FinerLevels.rest`."""
        chunk = self._chunks.rest()
        return self._draw_chunk(chunk) if len(chunk) else self.no_codes

    @property
    def count(self) -> int:
        """Levels of a frame's codes, level 0 included."""
        return 1 + len(self._prefixes)

    @property
    def longest(self) -> int:
        """Positions of the longest sequence."""
        return max(len(one) for own in self._prefixes.values() for one in own) + self.frames

    def reserve(self, condition: int, count: int) -> tuple[int, int, list[Sequence[int]]]:
        """Make room for the next frames in the sequences of one condition, which lie in pages.

        Returns:
            Position id of the first of the frames, positions held, and the pages of each level.

        Raises:
            OutOfPages: There is no room.
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

    def _draw_chunk(self, level_0: Tensor) -> Tensor:
        """Return the codes ``[n, 1 + levels]`` of the next ``n`` frames, given their level 0."""
        codes = level_0[:, None]
        for level in self._prefixes:

            def extend(
                prefix: Prefix, condition: int, codes: Tensor = codes, level: int = level
            ) -> Tensor:
                return self._extend(prefix, self._slot(level, condition), codes, level)

            drawn = self._draw(level, extend, self.frames)
            codes = torch.cat([codes, drawn[:, None]], 1)
        self.frames += len(level_0)
        return codes

    def _extend(self, prefix: Prefix, slot: int, codes: Tensor, level: int) -> Tensor:
        """Return the logits ``[n, V]`` of one level of the next frames, under one condition."""
        model, count = self._model, len(codes)
        begin = prefix.response_start + self.frames
        hidden = model.transformer.extend(
            model.embed_response(codes, level),
            torch.arange(begin, begin + count, device=codes.device),
            self._cache,
            slot,
            model.ranks(level, model.response_blocks(self.frames, count)),
        )
        return model.logits(hidden, level)

    def _slot(self, level: int, condition: int) -> int:
        return (level - 1) * len(self._prefixes[level]) + condition

    def _make_cache(self, prefixes: PrefixCache) -> SlotCache:
        own = [prefix for conditions in self._prefixes.values() for prefix in conditions]
        length = max(map(len, own)) + self._inputs.max_frames
        return prefixes.new_cache(len(own), length)

    @torch.inference_mode()
    def _read_prefixes(self, prefixes: PrefixCache, together: FixedExtend | None) -> None:
        model, keys = self._model, (self._inputs.voice, self._inputs.null)
        alike: dict[int, Prefix] = {}  # by slot: texts behind what they share with others
        for level, conditions in self._prefixes.items():
            for condition, prefix in enumerate(conditions):
                slot = self._slot(level, condition)
                rest = prefixes.begin(prefix, level, self._cache, slot, keys[condition])
                if not len(rest):
                    continue
                if together is not None and not condition and prefix.shared:
                    alike[slot] = rest
                    continue
                ranks = model.ranks(level, rest.blocks)
                model.transformer.extend(rest.embeddings, rest.positions, self._cache, slot, ranks)
        if together is not None and alike:
            self._read_together(together, alike)

    def _read_together(self, together: FixedExtend, texts: Mapping[int, Prefix]) -> None:
        """Read the texts of several slots, which differ in their embeddings alone.

        Where a prefix shares its beginning, no position sees one of a later block; so what each
        sees of the text is its beginning, too.
        """
        cache, first = self._cache, next(iter(texts.values()))
        assert isinstance(cache, PagedCache)
        ranks = self._model.ranks(1, first.blocks)
        reach = (ranks <= ranks[:, None]).sum(1)
        x = torch.stack([text.embeddings for text in texts.values()])
        together.extend(x, first.positions, cache, [*texts], reach)
