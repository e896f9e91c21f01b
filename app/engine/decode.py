"""Level 0 of one utterance by itself, from phonemes to codes."""

from collections.abc import Callable, Iterator
from time import perf_counter

import torch
from torch import Tensor

from app.engine.ar import ArBatch
from app.engine.ar_utterance import ArUtterance
from app.engine.job import Backtrack, FinishReason, TraceColumns
from app.engine.masked import draw_masked
from app.engine.piece import Piece
from models.prefix_cache import PrefixCache
from models.valle import Valle

OnFrame = Callable[[int], bool]
"""Called with the count after every frame; False stops."""


class LevelZero:
    """Level 0 of one utterance: iterate for its frames, ``[n]`` int64, as they become final.

    Attributes:
        finish_reason: Why it ended; to be read when it has.
        work_s: Seconds spent on it.
    """

    def __init__(
        self, model: Valle, piece: Piece, on_frame: OnFrame, prefixes: PrefixCache
    ) -> None:
        """Begin before the first frame.

        Args:
            model: On the device to use.
            piece: What to speak.
            on_frame: Told of every frame; those that are not final may be taken back.
            prefixes: Where what is shared comes from.
        """
        self._model, self._piece, self._on_frame = model, piece, on_frame
        self._prefixes = prefixes
        self._ar: ArUtterance | None = None
        self.codes = torch.zeros(0, dtype=torch.int64, device=model.separator.device)
        self.finish_reason: FinishReason = "stop"
        self.work_s = 0.0

    @property
    def trace(self) -> TraceColumns | None:
        """What was seen and done, if the piece asks for it; masked passes have no tokens."""
        if not self._piece.trace:
            return None
        return self._ar.trace if self._ar else {}

    @property
    def backtracks(self) -> tuple[Backtrack, ...]:
        """Every time that it was taken back."""
        return self._ar.backtracks if self._ar else ()

    @torch.inference_mode()
    def __iter__(self) -> Iterator[Tensor]:
        """Draw the frames; nothing more comes once `on_frame` says so.

        Raises:
            GenerationFailed: The model gave no numbers.
        """
        masked = self._piece.params.level_0 == "masked"
        resumed_s = perf_counter()
        for frames in self._draw_masked() if masked else self._draw():
            self.work_s += perf_counter() - resumed_s
            yield frames
            resumed_s = perf_counter()
        self.work_s += perf_counter() - resumed_s

    def _draw(self) -> Iterator[Tensor]:
        batch = ArBatch.alone(self._model, self._prefixes, self._piece)
        self._ar = ar = batch.admit(self._piece)
        given = 0
        while ar.finish_reason is None:
            batch.step()
            if ar.error is not None:
                raise ar.error
            if ar.finish_reason != "stop" and not self._on_frame(len(ar)):
                self.finish_reason, self.codes = "cancelled", ar.codes()
                return
            if ar.finish_reason is not None:
                self.finish_reason, self.codes = ar.finish_reason, ar.codes()
            if ar.final > given:
                start, given = given, ar.final
                yield ar.codes(start, given)

    def _draw_masked(self) -> Iterator[Tensor]:
        model, piece = self._model, self._piece
        drawn = draw_masked(
            model,
            piece.prefix(model, 0),
            piece.null_prefix(model, 0),
            piece.params,
            seed=piece.seed,
            utterance=piece.utterance,
            max_frames=piece.max_frames,
            on_frame=self._on_frame,
        )
        self.finish_reason, self.codes = drawn.finish_reason, drawn.codes
        if drawn.finish_reason != "cancelled":
            yield drawn.codes
