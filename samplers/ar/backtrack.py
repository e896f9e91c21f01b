"""One time that backtracking removed frames, as traces and reports have it. Loads no torch."""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

BacktrackCause = Literal["loop", "silence", "sequence", "repeat"]


@dataclass(frozen=True, slots=True)
class Backtrack:
    """One time that backtracking removed frames of an utterance."""

    cause: Annotated[
        BacktrackCause,
        Field(
            description="What was detected: a loop, too long a silence, or a sequence of"
            " `ban_sequences`."
        ),
    ]
    frames: Annotated[int, Field(description="How many frames there were.")]
    kept: Annotated[int, Field(description="How many of them were kept.")]
    code: Annotated[
        int,
        Field(description="The code of level 0 that followed those, which is penalised there now."),
    ]
