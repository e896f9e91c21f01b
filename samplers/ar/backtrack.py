"""One time that backtracking removed frames, as traces and reports have it. Loads no torch."""

from dataclasses import dataclass
from typing import Annotated, Final, Literal

from pydantic import Field

BacktrackCause = Literal["loop", "silence", "sequence", "repeat"]

PENALISED_BEHIND: Final = 8
"""Frames behind words that were said again, until which the codes of these are penalised."""


@dataclass(frozen=True, slots=True)
class Backtrack:
    """One time that backtracking removed frames of an utterance."""

    cause: Annotated[
        BacktrackCause,
        Field(
            description="What was detected: a loop, too long a silence, a sequence of"
            " `ban_sequences`, or words that were said again."
        ),
    ]
    frames: Annotated[int, Field(description="How many frames there were.")]
    kept: Annotated[int, Field(description="How many of them were kept.")]
    code: Annotated[
        int,
        Field(description="The code of level 0 that followed those, which is penalised there now."),
    ]
    codes: Annotated[
        tuple[int, ...],
        Field(
            description="Where words were said again, all codes of level 0 that were removed. They"
            f" are penalised until {PENALISED_BEHIND} frames behind them, without guidance. Empty"
            " for other causes."
        ),
    ] = ()

    @property
    def until(self) -> int:
        """The first frame at which nothing is penalised any more because of it."""
        return self.frames + PENALISED_BEHIND if self.cause == "repeat" else self.kept + 1
