"""The finer levels of an utterance: what both methods share, as conditions and guidance."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from app.engine.sound.chunks import Chunks
from app.engine.utterance import UtteranceInput
from models.prefix import Prefix
from models.valle import Valle
from samplers.knobs.features import is_guided
from samplers.nar import sample_nar
from samplers.ops.guidance import guide_frames


class FinerLevels(ABC):
    """Draws levels 1 and up of one utterance as the frames of level 0 come."""

    def __init__(self, model: Valle, codebooks: Tensor, inputs: UtteranceInput) -> None:
        """Assemble the prefixes of all levels; with guidance, two a level.

        Args:
            model: On the device to use.
            codebooks: ``[K, V, D]`` vectors of the codec's codes, for `nar_decision="mean"`.
            inputs: What is spoken.
        """
        self._model, self._codebooks, self._inputs = model, codebooks, inputs
        levels = range(1, 1 + min(inputs.params.nar_levels, model.config.levels - 1))
        self._prefixes = {level: self._conditions(level) for level in levels}
        self._chunks = Chunks(model.config.block_frames)

    @property
    def no_codes(self) -> Tensor:
        """``[0, 1 + levels]`` int64, the codes of no frames."""
        shape, device = (0, 1 + len(self._prefixes)), self._model.separator.device
        return torch.zeros(shape, dtype=torch.int64, device=device)

    @abstractmethod
    def push(self, level_0: Tensor, *, ended: bool = False) -> Iterator[list[Tensor]]:
        """Take the next frames of level 0 and draw all that can be drawn now.

        The iterator is to be exhausted before the next call.

        Args:
            level_0: ``[n]`` int64 on the model's device, any number of final frames.
            ended: Whether they are the last.

        Yields:
            After each draw the chunks that it completed, perhaps none: each ``[m, 1 + levels]``
            int64, level 0 and the finer levels.
        """

    @abstractmethod
    def rest(self) -> Tensor:
        """Return the last chunk ``[m, 1 + levels]`` int64, often of no frames; once, at the end."""

    def _conditions(self, level: int) -> list[Prefix]:
        prefix, null = self._inputs.prefix, self._inputs.null_prefix
        conditions = [prefix(self._model, level)]
        if is_guided(self._inputs.params, "nar"):
            conditions.append(null(self._model, level))
        return conditions

    def _draw(
        self, level: int, predict: Callable[[Prefix, int], Tensor], position: int, skip: int = 0
    ) -> Tensor:
        """Draw one level of some frames.

        Args:
            level: Index of the level.
            predict: Returns the logits ``[n, V]`` under a prefix and the index of its condition: 0,
                or 1 for the unconditional one.
            position: Index of the first frame that is drawn.
            skip: Rows of the logits that come before it.

        Returns:
            ``[n - skip]`` int64.
        """
        params = self._inputs.params
        logits, *null = [
            predict(prefix, index)[skip:] for index, prefix in enumerate(self._prefixes[level])
        ]
        if null:
            logits = guide_frames(logits, null[0], params.nar_cfg_strength, params.nar_cfg_rescale)
        drawn = sample_nar(
            logits,
            params,
            seed=self._inputs.seed,
            utterance=self._inputs.utterance,
            level=level,
            position=position,
            codebook=self._codebooks[level],
        )
        kept = self._inputs.kept
        if kept is None or position >= len(kept.codes):
            return drawn
        known = kept.codes[position : position + len(drawn), level].to(drawn.device)
        return torch.cat([known, drawn[len(known) :]])
