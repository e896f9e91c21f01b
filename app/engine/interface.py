"""What a job becomes in a model: its plan, its level 0 in a batch, its stream of sound.

Two threads run a model: one samples level 0 of all jobs together (`RunningBatch`), the other makes
the audio of it, a chunk at a time (`AudioStream`). The parts of a model are in `app.engine.model`.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from app.engine.core import AudioChunk, MadeBy, Plan, Progress
from app.engine.errors import SpeechError
from app.engine.messages import ArMessage
from app.version import VERSION
from models.text import Utterance


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What status pages and answers say of the loaded model."""

    name: str
    sha256: str  # of the checkpoint, hexadecimal
    device: str
    sample_rate_hz: int
    languages: tuple[str, ...]
    weights: str = "float32"  # number format of the language model's matrices
    decoder: str = "codec"  # what makes samples of codes: `codec` or `vocos`
    frame_rate_hz: float = 75.0  # frames of codes in a second of speech
    # How few rows of level 0 are computed together, so that each has the same bits in every
    # batch: `models.stack.batching`; empty on a GPU.
    batching: str = ""
    aligns: bool = False  # whether it can tell when words are heard
    levels: int = 0  # codes of a frame
    codes: int = 0  # how many codes a level has
    kernels: str = ""  # which kernels are our own, and why others are not; empty on a CPU
    # Why some functions could not be captured on a GPU, and are slower.
    unrecorded: tuple[str, ...] = ()
    # What the model adds to the JSON schema of fields of requests, as it takes fewer values.
    fields: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def made_by(self) -> MadeBy:
        """What reports say of it."""
        return MadeBy(VERSION, self.name, self.sha256, self.weights, self.device)


@dataclass(frozen=True, slots=True)
class FirstChunk:
    """One of the first chunks of an utterance, and what it waits for."""

    frames: int  # how many frames of level 0 are sampled between the first chunk and this one
    before_s: float  # seconds of audio of the chunks before it, the first one's included
    # Seconds of speech that are sampled when it can be made, the first chunk's included
    speech_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Reading:
    """How a text is read: its language and its utterances, as phonemes."""

    language: str
    utterances: tuple[Utterance, ...]
    left_out: tuple[str, ...] = ()  # as in a `Plan`


@dataclass(frozen=True, slots=True)
class GoldenResult:
    """Outcome of the golden requests."""

    spoken: int
    different: int  # how many of them had other codes than those stored


class ArStream(Protocol):
    """Level 0 of one job; `app.engine.ar.job.ArJob` is one."""

    over: bool
    error: SpeechError | None  # what failed, if something did; the job is then over

    @property
    def frames(self) -> int:
        """How many are ready for synthesis, of all utterances so far."""

    @property
    def ready_s(self) -> float:
        """Seconds that the sound of those frames lasts."""

    @property
    def progress(self) -> Progress:
        """The current utterance and its frames so far."""

    @property
    def waits(self) -> bool:
        """Whether nothing can be sampled before more of its text is known."""


class RunningBatch(Protocol):
    """Level 0 of many jobs; `app.engine.ar.stage.ArStage` is one. One thread only."""

    def begin(self, plan: Plan, on_message: Callable[[ArMessage], None]) -> ArStream:
        """Add a job; `step` calls ``on_message`` with what is known of it for sure, in order."""

    def extend(self, job: ArStream, plan: Plan) -> None:
        """Give a job a plan of more of its text."""

    def step(self, jobs: Collection[ArStream]) -> None:
        """Sample a step of some jobs, of a frame or a few; the others are paused."""

    def end(self, job: ArStream) -> None:
        """Remove a job; its rows are free at once."""

    def close(self) -> None:
        """Remove all jobs."""


class AudioStream(Protocol):
    """The audio of one job; `app.engine.join.job.AudioJob` is one. One thread only."""

    # Of an utterance, but for the very first: they wait for frames that may still be taken back.
    # Empty where all chunks come at its end.
    first_chunks: tuple[FirstChunk, ...]

    def push(self, message: ArMessage) -> Iterator[AudioChunk]:
        """Take what comes next of level 0 and yield audio, the last chunk with the result."""

    def close(self) -> None:
        """Release what the job holds, whether it is over or not."""
