"""A loaded model as the engine has it: one part for each worker, which is given that part alone."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from app.engine.admission.cost_model import CostModel
from app.engine.admission.playback import Playback
from app.engine.core import AudioChunk, Plan, SpeechJob, SpeechResult
from app.engine.interface import AudioStream, GoldenResult, ModelInfo, Reading, RunningBatch
from app.engine.results import Codes
from app.engine.voices import Voices
from models.voices.recording import Recording
from samplers.knobs.params import SamplingParams


class TextPart(Protocol):
    """What reads texts, in the text thread; `app.engine.backend.planner.Planner` is one."""

    @property
    def voices(self) -> Voices:
        """The voices that the model can speak as."""

    @property
    def presets(self) -> Mapping[str, SamplingParams]:
        """Name of each preset, `auto` first -> every knob resolved for this model, no seed."""

    def plan(self, job: SpeechJob, on_piece: Callable[[], None] = lambda: None) -> Plan:
        """Check and resolve a job, and convert its text; raise a SpeechError.

        ``on_piece`` is called every few milliseconds meanwhile, and may plan other jobs.
        """

    def read(self, job: SpeechJob, on_piece: Callable[[], None] = lambda: None) -> Reading:
        """Convert the text of a job alone, as `plan` does; raise a SpeechError."""


class EncoderPart(Protocol):
    """What reads audio files and encodes them, in a thread beside the text's.

    `app.engine.backend.encoder.AudioEncoder` is one.
    """

    def read_audio(self, content: bytes, start_s: float | None = None) -> Recording:
        """Return what an audio file has; raise a SpeechError."""

    def encode(self, audio: Recording) -> Codes:
        """Return the codes ``[T, K]`` of what an audio file has."""


class ArPart(Protocol):
    """What samples level 0; `app.engine.backend.batch_factory.BatchFactory` is one."""

    def batch(self, slots: int) -> RunningBatch:
        """Return an empty batch of so many rows. Call in the thread that will use it."""


class AudioPart(Protocol):
    """What makes the audio of jobs, by NAR and codec. One thread only.

    `app.engine.backend.audio_maker.AudioMaker` is one.
    """

    def sound_context(self) -> AbstractContextManager[None]:
        """Return the context in which the thread must work."""

    def prepare_audio(self) -> None:
        """Make ready to make audio; restart the sound process if it is gone."""

    def audio_stream(self, plan: Plan, playback: Playback) -> AudioStream:
        """Return what makes the audio of a job."""

    def replay(self, result: SpeechResult, playback: Playback) -> Iterator[AudioChunk]:
        """Yield the audio of a speech once more, from the codes of its result."""

    @property
    def chunks_at_once(self) -> int:
        """The most chunks of audio that `make_together` makes; 1: it makes none."""

    def make_together(self, streams: Sequence[AudioStream]) -> Sequence[AudioStream]:
        """Make the next chunk of the most urgent stream, the first, and of others that fit.

        Returns those whose `push` iterators have it then; none if the first is made by itself.
        """


class MemoryPart(Protocol):
    """What the model takes of its device; `app.engine.backend.model_memory.ModelMemory` is one."""

    def fits(self, plan: Plan, running: Iterable[Plan]) -> bool:
        """Return whether memory holds a job beside those that have begun and not ended."""

    @property
    def cache_bytes(self) -> Mapping[str, int]:
        """The bytes of keys and values, by what they are of. Any thread may ask."""

    def unload(self, is_idle: Callable[[], bool]) -> None:
        """Move the model off its device, if `is_idle` says so; work of any part moves it back."""


class CheckPart(Protocol):
    """What the model does before it serves; `app.engine.backend.self_check.SelfCheck` is one."""

    def check_deterministic(self) -> bool:
        """Return whether a job has the same codes alone and in a batch. Call before all jobs."""

    def measure(self, costs: CostModel, slots: int) -> RunningBatch:
        """Speak for about a second and note the costs; returns a batch of at least so many rows."""

    def check_golden(self) -> GoldenResult | None:
        """Speak the golden requests; None if the model has none for the weights in use."""


class LoadedModel(Protocol):
    """A loaded model; `app.engine.backend.synthesizer.Synthesizer` is one."""

    @property
    def info(self) -> ModelInfo:
        """What status pages and answers say of it."""

    @property
    def planner(self) -> TextPart:
        """The text worker's."""

    @property
    def encoder(self) -> EncoderPart:
        """The part of who reads audio files."""

    @property
    def ar(self) -> ArPart:
        """The scheduler's."""

    @property
    def audio(self) -> AudioPart:
        """The audio worker's."""

    @property
    def memory(self) -> MemoryPart:
        """The part of who admits jobs and unloads the model."""

    @property
    def checks(self) -> CheckPart:
        """The part of who starts it."""

    def close(self) -> None:
        """Release everything; nothing may be called afterwards."""
