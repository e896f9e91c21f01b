"""Windows: the finer levels, a stretch at a time, of models whose frames all see each other.

Such models were trained to see the whole, and nothing of a pass can be kept for the next. Whoever
cannot wait for the end draws windows: a stretch of frames is decided from a pass over it, some
frames before it and some after it. Those before it are decided already. Of those after it only
level 0 is known; their finer levels are drawn along, seen by the levels above, and drawn again when
their turn comes.
"""

import sys
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from app.engine.sound.nar import FinerLevels
from app.engine.utterance import UtteranceInput
from models.valle import Prefix, Valle


class Window(NamedTuple):
    """Frames ``start`` to ``end`` are decided from a pass over ``first`` to ``last``."""

    first: int
    start: int
    end: int
    last: int


class Windows:
    """Cuts an utterance into windows: a function of the frame index and of where it ends."""

    def __init__(self, frames: int, left_context: int, lookahead: int) -> None:
        """Begin before the first frame.

        Args:
            frames: Of a window; 0 is the whole utterance.
            left_context: Frames before it that are seen.
            lookahead: Frames after it that are seen.
        """
        self._frames = frames or sys.maxsize
        self._left_context, self._lookahead = left_context, lookahead
        self._start = 0

    def up_to(self, count: int, *, ended: bool) -> Iterator[Window]:
        """Return the windows that can now be decided.

        Args:
            count: How many frames there are.
            ended: There will be no more.
        """
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


class WindowedLevels(FinerLevels):
    """Draws window by window, or all at the end."""

    def __init__(self, model: Valle, codebooks: Tensor, inputs: UtteranceInput) -> None:
        """Begin before the first frame.

        Args:
            model: On the device to use.
            codebooks: ``[K, V, D]`` vectors of the codec's codes, which some draws weigh.
            inputs: What is spoken.
        """
        super().__init__(model, codebooks, inputs)
        params = inputs.params
        self._windows = Windows(
            params.nar_window_frames, params.nar_left_context_frames, params.nar_lookahead_frames
        )
        self._level_0 = self.nothing[:, 0]
        self._decided = self.nothing

    @torch.inference_mode()
    def push(self, level_0: Tensor, *, ended: bool = False) -> Iterator[Tensor]:
        """Draw the windows that the frames complete; see `FinerLevels.push`."""
        self._level_0 = torch.cat([self._level_0, level_0])
        for window in self._windows.up_to(len(self._level_0), ended=ended):
            codes = self._draw_window(window)
            self._decided = torch.cat([self._decided, codes])
            yield codes

    def _draw_window(self, window: Window) -> Tensor:
        """Return ``[end - start, 1 + levels]``."""
        first, start, end, last = window
        before = self._decided[first:start]
        # Memory of its own: where the frames lie must not depend on how they came.
        codes = self._level_0[first:last, None].clone()
        for level in self._prefixes:

            def predict(
                prefix: Prefix, _: int, codes: Tensor = codes, level: int = level
            ) -> Tensor:
                return self._model.nar_logits(prefix, codes, level, start=first)

            drawn = self._draw(level, predict, start, skip=start - first)
            codes = torch.cat([codes, torch.cat([before[:, level], drawn])[:, None]], 1)
        return codes[start - first : end - first]
