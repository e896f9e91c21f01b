"""One utterance's level 0 while it is drawn: what is there, what is final, how it ended."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple, Self

import torch
from torch import Tensor

from app.engine.backtracking import Backtracker
from app.engine.errors import GenerationFailed
from app.engine.job import Backtrack, FinishReason, TraceColumns
from app.engine.piece import Piece
from samplers.entropix import AttentionStatistics
from samplers.history import History
from samplers.rows import on
from samplers.trace import Record, columns

_STATISTICS = tuple(field.name for field in fields(AttentionStatistics))


class Seen(NamedTuple):
    """What the model made of all that some rows have read.

    Attributes:
        hidden: ``[B, D]``.
        attention: ``[4, B]`` float32, how they attended, in the order of `AttentionStatistics`; NaN
            where the model was not asked.
    """

    hidden: Tensor
    attention: Tensor

    @classmethod
    def blind(cls, hidden: Tensor) -> Self:
        """Return that of rows which the model was not asked about."""
        unasked = torch.full((len(_STATISTICS), len(hidden)), torch.nan, device=hidden.device)
        return cls(hidden, unasked)


def as_tensor(attention: AttentionStatistics) -> Tensor:
    """Return ``[4, B]``, as in `Seen`."""
    return torch.stack([getattr(attention, name) for name in _STATISTICS])


@dataclass(frozen=True, slots=True)
class Condition:
    """What an utterance is drawn under: its words, or, where it is guided, none.

    Attributes:
        slot: Where its keys and values are.
        length: Positions of the slot before the first frame.
        start: The position that the first frame has.
        first: What the first frame is predicted from.
    """

    slot: int
    length: int
    start: int
    first: Seen


class ArUtterance:
    """Level 0 of one utterance, as an `app.engine.ar.ArBatch` draws it.

    Attributes:
        piece: What is spoken.
        conditions: The one with its words, and the one without if it is guided.
        wants_attention: Whether entropix is to know how the model attends.
        finish_reason: Why it ended; None while it goes on.
        error: What broke, if that was `error`.
    """

    def __init__(
        self,
        piece: Piece,
        conditions: Sequence[Condition],
        backtracker: Backtracker | None,
        *,
        stop_token: int,
    ) -> None:
        """Begin before the first frame.

        Args:
            piece: What is spoken.
            conditions: One or two.
            backtracker: Notices that it is stuck; None: nobody looks.
            stop_token: The code that ends it.
        """
        self.piece, self.conditions = piece, tuple(conditions)
        self.wants_attention = on("entropix", piece.params)
        self.finish_reason: FinishReason | None = None
        self.error: GenerationFailed | None = None
        self._stop_token = stop_token
        self._device = conditions[0].first.hidden.device
        self._backtracker = backtracker
        self._codes: list[int] = []
        self._records: list[tuple[Record, int]] = []

    def __len__(self) -> int:
        """How many frames there are; some may still be taken back."""
        return len(self._codes)

    @property
    def newest(self) -> int:
        """The code of the last frame."""
        return self._codes[-1]

    @property
    def final(self) -> int:
        """How many of the first frames will not be taken back."""
        if self._backtracker is None or self.finish_reason is not None:
            return len(self._codes)
        return self._backtracker.final

    @property
    def backtracks(self) -> tuple[Backtrack, ...]:
        """Every time that it was taken back."""
        return tuple(self._backtracker.taken) if self._backtracker else ()

    @property
    def trace(self) -> TraceColumns | None:
        """What was seen and done at every token, if the piece asks for it."""
        return columns(self._records) if self.piece.trace else None

    def codes(self, start: int = 0, end: int | None = None) -> Tensor:
        """Return ``[n]`` int64 of the frames that are there, or of some of them."""
        return torch.tensor(self._codes[start:end], dtype=torch.int64, device=self._device)

    def discourage(self, logits: Tensor) -> Tensor:
        """Make less likely what led astray at the next frame; ``(1, V)``, returned if unchanged."""
        if self._backtracker is None:
            return logits
        return self._backtracker.discourage(logits, len(self._codes))

    def note(self, record: Record, row: int) -> None:
        """Keep what was seen and done at a token, if the piece asks for it."""
        if self.piece.trace:
            self._records.append((record, row))

    def take(self, code: int, history: History, row: int) -> int | None:
        """Take the next code, and look back.

        Args:
            code: The stop, or a frame.
            history: With a row of all that it drew, this code included.
            row: Which.

        Returns:
            How many frames are left where some were taken back; else None.
        """
        if code == self._stop_token:
            self.finish_reason = "stop"
            return None
        self._codes.append(code)
        watch = self._backtracker
        verdict = watch.look(self._codes, history, row) if watch else None
        if verdict is not None:
            del self._codes[verdict.keep :]
            if verdict.stuck:
                self.finish_reason = "stuck"
        elif len(self._codes) == self.piece.max_frames:
            self.finish_reason = "length"
        return None if verdict is None else verdict.keep

    def fail(self, error: GenerationFailed) -> None:
        """End it because something broke."""
        self.finish_reason, self.error = "error", error


class Line(NamedTuple):
    """One row of a step of the stack: an utterance under one of its conditions."""

    utterance: ArUtterance
    condition: Condition

    @property
    def position(self) -> int:
        """Where the utterance's newest frame stands."""
        return self.condition.start + len(self.utterance) - 1

    @property
    def looks(self) -> bool:
        """Whether the model is asked how it attends: under the words alone."""
        own = self.condition is self.utterance.conditions[0]
        return own and self.utterance.wants_attention
