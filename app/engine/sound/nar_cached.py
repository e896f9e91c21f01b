"""The finer levels of models whose frames see no later ones, chunk by chunk over a cache.

Every level keeps its own keys and values, so that a stream costs no more than one pass over the
whole and gives the codes of that pass, up to rounding.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

from app.engine.sound.chunks import Chunks
from app.engine.sound.nar import FinerLevels
from app.engine.utterance import UtteranceInput
from models.stack.prefix_cache import PrefixCache
from models.stack.slots import Slots
from models.valle import Prefix, Valle


class CachedLevels(FinerLevels):
    """Draws a chunk as soon as its last frame is there."""

    def __init__(
        self, model: Valle, codebooks: Tensor, inputs: UtteranceInput, prefixes: PrefixCache
    ) -> None:
        """Read the prefixes of all levels.

        Args:
            model: On the device to use.
            codebooks: ``[K, V, D]`` vectors of the codec's codes, which some draws weigh.
            inputs: What is spoken.
            prefixes: Where what is shared comes from.
        """
        super().__init__(model, codebooks, inputs)
        self._frames = 0
        self._chunks = Chunks(model.config.block_frames)
        if self._prefixes:
            self._cache = self._make_cache()
            self._read_prefixes(prefixes)

    @torch.inference_mode()
    def push(self, level_0: Tensor, *, ended: bool = False) -> Iterator[Tensor]:
        """Draw the chunks that the frames complete; see `FinerLevels.push`."""
        for chunk in self._chunks.push(level_0, ended=ended):
            yield self._draw_chunk(chunk)

    def _draw_chunk(self, level_0: Tensor) -> Tensor:
        codes = level_0[:, None]
        for level in self._prefixes:

            def extend(
                prefix: Prefix, condition: int, codes: Tensor = codes, level: int = level
            ) -> Tensor:
                return self._extend(prefix, self._slot(level, condition), codes, level)

            drawn = self._draw(level, extend, self._frames)
            codes = torch.cat([codes, drawn[:, None]], 1)
        self._frames += len(level_0)
        return codes

    def _extend(self, prefix: Prefix, slot: int, codes: Tensor, level: int) -> Tensor:
        """Return ``[n, V]`` of the next frames' level under one condition."""
        model, count = self._model, len(codes)
        begin = prefix.response_start + self._frames
        hidden = model.transformer.extend(
            model.embed_response(codes, level),
            torch.arange(begin, begin + count, device=codes.device),
            self._cache,
            slot,
            model.ranks(level, model.response_blocks(self._frames, count)),
        )
        return model.logits(hidden, level)

    def _slot(self, level: int, condition: int) -> int:
        return (level - 1) * len(self._prefixes[level]) + condition

    def _make_cache(self) -> Slots:
        prefixes = [prefix for conditions in self._prefixes.values() for prefix in conditions]
        room = max(map(len, prefixes)) + self._inputs.max_frames
        return self._model.new_cache(len(prefixes), room)

    @torch.inference_mode()
    def _read_prefixes(self, prefixes: PrefixCache) -> None:
        model, keys = self._model, (self._inputs.voice, self._inputs.null)
        for level, conditions in self._prefixes.items():
            for condition, prefix in enumerate(conditions):
                slot = self._slot(level, condition)
                rest = prefixes.begin(prefix, level, self._cache, slot, keys[condition])
                if len(rest):
                    ranks = model.ranks(level, rest.blocks)
                    model.transformer.extend(
                        rest.embeddings, rest.positions, self._cache, slot, ranks
                    )
