"""The finer levels of an utterance, drawn chunk by chunk while level 0 goes on.

Every level keeps its own keys and values, so that a stream costs no more than one pass over the
whole and gives the codes of that pass, up to rounding.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from app.engine.piece import Piece
from app.engine.plan import Chunks
from models.cache import KVCache
from models.prefix_cache import PrefixCache
from models.valle import Prefix, Valle
from samplers.guidance import guide_frames
from samplers.nar import sample_nar


@dataclass(frozen=True, slots=True)
class _Row:
    """One condition of one level: its prefix, and the slot that holds it."""

    prefix: Prefix
    slot: int


class FinerLevels:
    """Levels 1 and up of one utterance.

    Where every frame sees all others, nothing can be drawn before the last one is there.
    """

    def __init__(
        self, model: Valle, codebooks: Tensor, piece: Piece, prefixes: PrefixCache
    ) -> None:
        """Read the prefixes of all levels; guided levels have two.

        Args:
            model: On the device to use.
            codebooks: ``[K, V, D]`` vectors of the codec's codes, which some draws weigh.
            piece: What is spoken.
            prefixes: Where what is shared comes from.
        """
        self._model, self._codebooks, self._piece = model, codebooks, piece
        self._streams = model.config.nar_mask != "full"
        self._frames = 0
        self._levels: dict[int, list[_Row]] = {}
        slots = 0
        for level in range(1, 1 + min(piece.params.nar_levels, model.config.levels - 1)):
            conditions = [piece.prefix(model, level)]
            if piece.params.nar_cfg_strength > 1:
                conditions.append(piece.null_prefix(model, level))
            self._levels[level] = [
                _Row(prefix, slots + place) for place, prefix in enumerate(conditions)
            ]
            slots += len(conditions)
        if self._streams and slots:
            self._cache = self._make_cache(slots)
            self._read_prefixes(prefixes)

    def chunks(self) -> Chunks:
        """Return what cuts level 0 into the chunks that `draw` is to be called for."""
        return Chunks(self._model.config.block_frames if self._streams else None)

    @property
    def nothing(self) -> Tensor:
        """``[0, 1 + levels]`` int64: what no frame gives."""
        shape, device = (0, 1 + len(self._levels)), self._model.separator.device
        return torch.zeros(shape, dtype=torch.int64, device=device)

    @torch.inference_mode()
    def draw(self, level_0: Tensor) -> Tensor:
        """Draw the finer codes of the next chunk.

        Args:
            level_0: ``[n]`` int64.

        Returns:
            ``[n, 1 + levels]`` int64: the same, and the finer levels that the piece asks for.
        """
        codes = level_0[:, None]
        for level in self._levels:
            drawn = sample_nar(
                self._logits(codes, level),
                self._piece.params,
                seed=self._piece.seed,
                utterance=self._piece.utterance,
                level=level,
                position=self._frames,
                codebook=self._codebooks[level],
            )
            codes = torch.cat([codes, drawn[:, None]], 1)
        self._frames += len(level_0)
        return codes

    def _logits(self, codes: Tensor, level: int) -> Tensor:
        """Return ``[n, V]`` of the next frames' level, guided if the piece asks for it."""
        predict = self._extend if self._streams else self._predict_whole
        own, *null = [predict(row, codes, level) for row in self._levels[level]]
        if not null:
            return own
        params = self._piece.params
        return guide_frames(own, null[0], params.nar_cfg_strength, params.nar_cfg_rescale)

    def _extend(self, row: _Row, codes: Tensor, level: int) -> Tensor:
        model, count = self._model, len(codes)
        begin = row.prefix.response_start + self._frames
        hidden = model.transformer.extend(
            model.embed_response(codes, level),
            torch.arange(begin, begin + count, device=codes.device),
            self._cache,
            row.slot,
            model.ranks(level, model.response_blocks(self._frames, count)),
        )
        return model.logits(hidden, level)

    def _predict_whole(self, row: _Row, codes: Tensor, level: int) -> Tensor:
        return self._model.nar_logits(row.prefix, codes, level)

    def _make_cache(self, slots: int) -> KVCache:
        prefixes = [row.prefix for rows in self._levels.values() for row in rows]
        return KVCache(
            self._model.config,
            slots,
            max(map(len, prefixes)) + self._piece.max_frames,
            device=self._model.separator.device,
        )

    @torch.inference_mode()
    def _read_prefixes(self, prefixes: PrefixCache) -> None:
        model, keys = self._model, (self._piece.voice, self._piece.null)
        for level, rows in self._levels.items():
            for row, key in zip(rows, keys, strict=False):
                rest = prefixes.begin(row.prefix, level, self._cache, row.slot, key)
                if len(rest):
                    ranks = model.ranks(level, rest.blocks)
                    model.transformer.extend(
                        rest.embeddings, rest.positions, self._cache, row.slot, ranks
                    )
