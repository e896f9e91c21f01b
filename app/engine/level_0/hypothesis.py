"""One way that an utterance's level 0 is drawn, and where it stands in the batch."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple, Self

import torch
from torch import Tensor

from app.engine.job import FinishReason
from app.engine.level_0.backtracking import Backtracker
from app.engine.utterance import UtteranceInput
from samplers.ar.history import History
from samplers.ar.trace import Record
from samplers.knobs.features import is_on
from samplers.ops.entropix import AttentionStatistics

_STATISTICS = tuple(field.name for field in fields(AttentionStatistics))


class StackOutput(NamedTuple):
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
    """Return ``[4, B]``, as in `StackOutput`."""
    return torch.stack([getattr(attention, name) for name in _STATISTICS])


@dataclass(frozen=True, slots=True)
class Condition:
    """What a take is drawn under: its words, or, where it is guided, none.

    Attributes:
        slot: Where its keys and values are.
        length: Positions of the slot before the first frame.
        start: The position that the first frame has.
        first: What the first frame is predicted from.
    """

    slot: int
    length: int
    start: int
    first: StackOutput


@dataclass(frozen=True, slots=True)
class Alternative:
    """Another code that a take might have drawn in the last step.

    Attributes:
        code: Which.
        logprob: Under the model's own logits, nats.
        record: What there is to trace of it, and in which row; None without a trace.
    """

    code: int
    logprob: float
    record: tuple[Record, int] | None


class Hypothesis:
    """One way that an utterance is drawn.

    Attributes:
        inputs: What is spoken.
        conditions: The one with its words, and the one without if it is guided.
        wants_attention: Whether entropix is to know how the model attends.
        codes: Of the frames that there are.
        logprobs: Of every token that stayed, the stop too, under the model's own logits, nats; only
            where somebody asks for them.
        score: Log-probability of a beam; -inf where it is none.
        finish_reason: Why it ended; None while it goes on.
        records: What there is to trace of each token, and in which row.
        ways: How else to go on from the last step, if it branches there.
    """

    def __init__(
        self,
        inputs: UtteranceInput,
        conditions: Sequence[Condition],
        backtracker: Backtracker | None,
        *,
        stop_token: int,
    ) -> None:
        """Begin before the first frame.

        Args:
            inputs: What is spoken.
            conditions: One or two.
            backtracker: Notices that it is stuck; None: nobody looks.
            stop_token: The code that ends it.
        """
        self.inputs, self.conditions = inputs, tuple(conditions)
        self.wants_attention = is_on("entropix", inputs.params)
        self.backtracker = backtracker
        self.codes: list[int] = []
        self.logprobs: list[float] = []
        self.score = 0.0
        self.finish_reason: FinishReason | None = None
        self.records: list[tuple[Record, int]] = []
        self.ways: Sequence[Alternative] = ()
        self._stop_token = stop_token

    @property
    def rests(self) -> bool:
        """Whether its row draws nothing: it is a beam that has ended, or none."""
        return self.finish_reason is not None or self.score == -torch.inf

    @property
    def slots(self) -> list[int]:
        """Where its keys and values are."""
        return [condition.slot for condition in self.conditions]

    def discourage(self, logits: Tensor) -> Tensor:
        """Make less likely what led astray at the next frame; ``(1, V)``, returned if unchanged."""
        if self.backtracker is None:
            return logits
        return self.backtracker.discourage(logits, len(self.codes))

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
        self.codes.append(code)
        watch = self.backtracker
        verdict = watch.look(self.codes, history, row) if watch else None
        if verdict is not None:
            del self.codes[verdict.keep :], self.logprobs[verdict.keep :]
            if verdict.stuck:
                self.finish_reason = "stuck"
        elif len(self.codes) == self.inputs.max_frames:
            self.finish_reason = "length"
        return None if verdict is None else verdict.keep

    def become(self, other: "Hypothesis") -> None:
        """Go on from where another take of the same piece is, in slots of its own."""
        self.codes, self.logprobs = other.codes.copy(), other.logprobs.copy()
        self.records, self.finish_reason = other.records.copy(), other.finish_reason


class StackRow(NamedTuple):
    """One row of a step of the stack: a take under one of its conditions."""

    take: Hypothesis
    condition: Condition

    @property
    def position(self) -> int:
        """Where the take's newest frame stands."""
        return self.condition.start + len(self.take.codes) - 1

    @property
    def looks(self) -> bool:
        """Whether the model is asked how it attends: under the words alone."""
        return self.condition is self.take.conditions[0] and self.take.wants_attention
