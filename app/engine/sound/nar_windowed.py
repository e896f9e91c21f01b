"""The finer levels of models whose frames all see each other: window by window, or at the end.

Such models were trained to see the whole utterance, and nothing of one pass can be reused in the
next. For sound before the end (`nar_window_frames`), each window of frames is drawn in passes over
the window, some frames before it and some after it. Those before it are drawn already. Of those
after it only level 0 is known: their finer levels are drawn along, are seen by the levels above,
and are drawn again in their own window.
"""

import sys
from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from app.engine.sound.nar import FinerLevels
from app.engine.utterance import UtteranceInput
from models.prefix import Prefix
from models.valle import Valle


class Window(NamedTuple):
    """Frames ``start`` to ``end`` (excluded) are drawn in passes over ``first`` to ``last``."""

    first: int
    start: int
    end: int
    last: int


class Windows:
    """Cuts an utterance into windows: a function of the frame index and of where it ends."""

    def __init__(self, frames: int, left_context: int, lookahead: int) -> None:
        """Begin before the first frame.

        Args:
            frames: Of a window; 0: the whole utterance is one.
            left_context: Frames before a window that are seen.
            lookahead: Frames after a window that are seen.
        """
        self._frames = frames or sys.maxsize
        self._left_context, self._lookahead = left_context, lookahead
        self._start = 0

    def up_to(self, count: int, *, ended: bool) -> Iterator[Window]:
        """Yield the windows that can be drawn now and were not yielded before.

        Args:
            count: How many frames of level 0 there are.
            ended: Whether there will be no more.
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
    """Draws each window once its lookahead has come, or all at the end."""

    def __init__(self, model: Valle, codebooks: Tensor, inputs: UtteranceInput) -> None:
        """Begin before the first frame.

        Args:
            model: On the device to use.
            codebooks: ``[K, V, D]`` vectors of the codec's codes, for `nar_decision="mean"`.
            inputs: What is spoken.
        """
        super().__init__(model, codebooks, inputs)
        params = inputs.params
        self._windows = Windows(
            params.nar_window_frames, params.nar_left_context_frames, params.nar_lookahead_frames
        )
        self._level_0 = self.no_codes[:, 0]
        self._codes = self.no_codes  # of the windows drawn so far
        self._chunks.push(self._codes)

    @torch.inference_mode()
    def push(self, level_0: Tensor, *, ended: bool = False) -> Iterator[list[Tensor]]:
        """Draw the windows that the frames complete; see `FinerLevels.push`."""
        self._level_0 = torch.cat([self._level_0, level_0])
        for window in self._windows.up_to(len(self._level_0), ended=ended):
            codes = self._draw_window(window)
            self._codes = torch.cat([self._codes, codes])
            yield self._chunks.push(codes)

    def rest(self) -> Tensor:
        """Return the frames after the last whole chunk; see `FinerLevels.rest`."""
        return self._chunks.rest()

    def _draw_window(self, window: Window) -> Tensor:
        """Return the codes ``[end - start, 1 + levels]`` of a window."""
        first, start, end, last = window
        before = self._codes[first:start]
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
