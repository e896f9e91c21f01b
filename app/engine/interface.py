"""What the engine asks of a loaded model, so that it need not know how speech is made.

Two threads make speech: one draws level 0 of all jobs together, the other makes sound of it, a
chunk at a time.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from torch import Tensor

from app.engine.errors import SpeechError
from app.engine.job import AudioChunk, NarPlan, Progress, SpeechJob, SpeechResult
from app.engine.playback import Playback
from app.engine.serving.capacity import Capacity
from app.engine.voices import Voices
from models.text import Utterance
from models.voices.voice import Voice
from samplers.knobs.params import SamplingParams


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What the outside may know of the loaded model.

    Attributes:
        batching: How few rows of level 0 are computed, so that each has the same bits in every
            batch: `models.stack.batching`; empty on a GPU.
    """

    name: str
    sha256: str
    device: str
    sample_rate_hz: int
    languages: tuple[str, ...]
    weights: str = "float32"
    decoder: str = "codec"
    frame_rate_hz: float = 75.0
    batching: str = ""


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
        rows: Of the batch that draws level 0, as long as that takes.
        prompt: ``[Tp, K]`` codes of the voice, or None.
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
    rows: int = 1
    prompt: Tensor | None = None
    nar: NarPlan = "chunks"
    decoder: str = "codec"


@dataclass(frozen=True, slots=True)
class Replay:
    """A speech that is to be heard again."""

    result: SpeechResult


@dataclass(frozen=True, slots=True)
class GoldenResult:
    """How many golden requests were spoken, and how many gave other codes than those stored."""

    spoken: int
    different: int


class Level0Stream(Protocol):
    """Level 0 of a job; `app.engine.level_0.job.Level0Stream` is one."""

    over: bool
    error: SpeechError | None
    frames: int

    @property
    def progress(self) -> Progress:
        """How far it is."""

    def news(self) -> Sequence[Any]:
        """Return what became final since the last call, for the job's `SoundStream`."""


D = TypeVar("D", bound=Level0Stream)


class Batch(Protocol[D]):
    """Level 0 of many jobs; `app.engine.level_0.job_batch.JobBatch` is one. One thread only."""

    def begin(self, plan: Plan) -> D:
        """Take a job; its rows must be free."""

    def step(self, going: Collection[D]) -> None:
        """Draw a frame of each of some jobs."""

    def end(self, drawing: D) -> None:
        """Forget a job; its rows are free at once."""

    def close(self) -> None:
        """Forget all jobs."""


class SoundStream(Protocol):
    """A job while sound is made of it; `app.engine.sound.job.SoundStream` is one."""

    def push(self, drawn: Any) -> Iterator[AudioChunk]:
        """Take what level 0 gives next and yield chunks, the last with the job's result."""

    def close(self) -> None:
        """Let go of what it needs, whether it is over or not."""


class Backend(Protocol):
    """What the engine needs of a loaded model; `app.engine.backend.Synthesizer` is one."""

    @property
    def info(self) -> ModelInfo:
        """What the outside may know of it."""

    @property
    def voices(self) -> Voices:
        """Who it can speak as."""

    def plan(self, job: SpeechJob) -> Plan:
        """Check a job and read its text, which takes a while; raise a SpeechError."""

    def batch(self, slots: int) -> Batch[Any]:
        """Return a batch without jobs, with so many rows, in the thread that will use it."""

    def sound_stream(self, plan: Plan, playback: Playback) -> SoundStream:
        """Return what makes sound of a job, in the thread that will use it."""

    def replay(self, replay: Replay, playback: Playback) -> Iterator[AudioChunk]:
        """Yield a job's chunks once more, from the codes of its result."""

    def prepare_sound(self) -> None:
        """Make ready for sound, anew if whoever made it is gone."""

    def sound_context(self) -> AbstractContextManager[None]:
        """Return the context in which the thread works that makes sound."""

    def unload(self, still: Callable[[], bool]) -> None:
        """Free the device while nobody needs it, as `still` tells; `plan` and `replay` take it."""

    def close(self) -> None:
        """Let go of what it needs; nothing is asked of it any more."""

    def measure(self, capacity: Capacity) -> None:
        """Speak for about a second and note what sound costs; before all jobs."""

    def check_golden(self) -> GoldenResult | None:
        """Speak the model's golden requests; None where it has none for the weights in use."""

    def check_deterministic(self) -> bool:
        """Return whether a job alone has the codes that it has among others; before all jobs."""
