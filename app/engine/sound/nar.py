"""What every way of drawing the finer levels has in common: conditions, guidance, the draw."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from app.engine.utterance import UtteranceInput
from models.valle import Prefix, Valle
from samplers.nar import sample_nar
from samplers.ops.guidance import guide_frames


class FinerLevels(ABC):
    """Levels 1 and up of one utterance, drawn as the frames of level 0 come."""

    def __init__(self, model: Valle, codebooks: Tensor, inputs: UtteranceInput) -> None:
        """Assemble the prefixes of all levels; guided levels have two.

        Args:
            model: On the device to use.
            codebooks: ``[K, V, D]`` vectors of the codec's codes, which some draws weigh.
            inputs: What is spoken.
        """
        self._model, self._codebooks, self._inputs = model, codebooks, inputs
        levels = range(1, 1 + min(inputs.params.nar_levels, model.config.levels - 1))
        self._prefixes = {level: self._conditions(level) for level in levels}

    @property
    def nothing(self) -> Tensor:
        """``[0, 1 + levels]`` int64: what no frame gives."""
        shape, device = (0, 1 + len(self._prefixes)), self._model.separator.device
        return torch.zeros(shape, dtype=torch.int64, device=device)

    @abstractmethod
    def push(self, level_0: Tensor, *, ended: bool = False) -> Iterator[Tensor]:
        """Take the next frames of level 0 and draw what can be drawn; to be read to its end.

        Args:
            level_0: ``[n]`` int64, any number; none of them will be taken back.
            ended: None will follow.

        Yields:
            ``[m, 1 + levels]`` int64 of the next frames: level 0, and the finer levels.
        """

    def _conditions(self, level: int) -> list[Prefix]:
        prefix, null = self._inputs.prefix, self._inputs.null_prefix
        conditions = [prefix(self._model, level)]
        if self._inputs.params.nar_cfg_strength > 1:
            conditions.append(null(self._model, level))
        return conditions

    def _draw(
        self, level: int, predict: Callable[[Prefix, int], Tensor], position: int, skip: int = 0
    ) -> Tensor:
        """Draw one level of some frames.

        Args:
            level: Which.
            predict: Gives logits ``[n, V]`` of a condition, told which it is: 0, or 1 for the null
                condition.
            position: Index of the first frame that is drawn.
            skip: Rows before it.

        Returns:
            ``[n - skip]`` int64.
        """
        params = self._inputs.params
        own, *null = [
            predict(prefix, place)[skip:] for place, prefix in enumerate(self._prefixes[level])
        ]
        if null:
            own = guide_frames(own, null[0], params.nar_cfg_strength, params.nar_cfg_rescale)
        return sample_nar(
            own,
            params,
            seed=self._inputs.seed,
            utterance=self._inputs.utterance,
            level=level,
            position=position,
            codebook=self._codebooks[level],
        )
