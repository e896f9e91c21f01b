"""When words and phonemes are heard. Loads without torch."""

from dataclasses import dataclass, replace
from typing import Annotated, Literal

from pydantic import Field

Timestamps = Literal["none", "word", "phoneme"]
"""Whose times are told."""


@dataclass(frozen=True, slots=True)
class PhonemeTimes:
    """When a phoneme is heard."""

    phoneme: Annotated[str, Field(description="With its stress and length marks.")]
    start_s: float
    end_s: float | None


@dataclass(frozen=True, slots=True)
class WordTimes:
    """When a word is heard, in the audio that was sent."""

    utterance: Annotated[int, Field(description="Number of its utterance, from 0.")]
    index: Annotated[int, Field(description="Its number in the utterance, from 0.")]
    word: Annotated[str, Field(description="As it was written, with its punctuation.")]
    spoken: Annotated[str, Field(description="The words that are spoken for it: normalised.")]
    start_s: float
    end_s: Annotated[
        float | None, Field(description="Null while it is not known; it is then told later.")
    ]
    missing: Annotated[
        bool,
        Field(
            description="Whether the sound lacks it; the times are then those where it should be."
        ),
    ]
    phonemes: Annotated[
        tuple[PhonemeTimes, ...] | None,
        Field(description="Those that have begun; null unless `timestamps` is `phoneme`."),
    ]
    voice: Annotated[str, Field(exclude=True)] = ""

    @property
    def shown(self) -> str:
        """The word as captions show it: inline phonemes without their brackets."""
        return self.word.replace("[[", "").replace("]]", "")

    def at_speed(self, speed: float) -> "WordTimes":
        """Return the same at a speed of the playback, rounded to 0.1 ms; its own are at speed 1."""
        phonemes = self.phonemes and tuple(
            replace(one, start_s=round(one.start_s / speed, 4), end_s=played_at(one.end_s, speed))
            for one in self.phonemes
        )
        end_s = played_at(self.end_s, speed)
        start_s = round(self.start_s / speed, 4)
        return replace(self, start_s=start_s, end_s=end_s, phonemes=phonemes)


def played_at(at_s: float | None, speed: float) -> float | None:
    """Return when something is heard at a speed of the playback, rounded to 0.1 ms."""
    return None if at_s is None else round(at_s / speed, 4)
