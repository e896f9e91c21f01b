"""What the engine asks of a loaded model, so that it need not know how speech is made."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from app.engine.job import AudioChunk, NarPlan, Progress, SpeechJob, SpeechResult
from app.engine.voices import Voices
from models.text import Utterance
from models.voice import Voice
from samplers.params import SamplingParams

OnProgress = Callable[[Progress], bool]
"""Called after every frame; False stops the job."""


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What the outside may know of the loaded model."""

    name: str
    sha256: str
    device: str
    sample_rate_hz: int
    languages: tuple[str, ...]
    weights: str = "float32"
    decoder: str = "codec"


@dataclass(frozen=True, slots=True)
class Plan:
    """A job that was found possible, with every choice made that the caller left open.

    Args:
        job: As it was submitted.
        params: Every knob with its value.
        seed: The one in ``params``.
        voice: Who speaks.
        language: As will be spoken.
        utterances: The text, read.
        text_s: Seconds that reading it took.
        nar: How much the finer levels will draw at a time.
        decoder: What will make sound of the codes.
    """

    job: SpeechJob
    params: SamplingParams
    seed: int
    voice: Voice
    language: str
    utterances: tuple[Utterance, ...]
    text_s: float
    nar: NarPlan = "chunks"
    decoder: str = "codec"


@dataclass(frozen=True, slots=True)
class Replay:
    """A speech that is to be heard again."""

    result: SpeechResult


class Speaking(Protocol):
    """What the engine needs of a loaded model; `app.engine.synthesis.Synthesizer` is one."""

    @property
    def info(self) -> ModelInfo:
        """What the outside may know of it."""

    @property
    def voices(self) -> Voices:
        """Who it can speak as."""

    def plan(self, job: SpeechJob) -> Plan:
        """Check a job and read its text, which takes a while; raise a SpeechError."""

    def speak(self, plan: Plan, *, queue_s: float, on_progress: OnProgress) -> Iterator[AudioChunk]:
        """Yield the job's chunks, the last with its result."""

    def replay(
        self, replay: Replay, *, queue_s: float, on_progress: OnProgress
    ) -> Iterator[AudioChunk]:
        """Yield the same chunks once more, from the codes of the result."""
