"""Speech in a Python program, without a server: see docs/library.md."""

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Final, Self
from weakref import finalize

import numpy as np
import soundfile
from numpy.typing import NDArray

from app.audio.containers import int16
from app.engine.backend.synthesizer import Synthesizer
from app.engine.core import AudioChunk, ReadingOptions, ReportOptions, SpeechJob, SpeechResult
from app.main import catalog_of
from app.settings import Settings
from models.voices.recording import read_recording
from models.voices.voice import VoiceCard
from samplers.knobs.params import SamplingParams

_READING: Final = ("language", "pronunciations")
_REPORTED: Final = ("timestamps", "trace")


@dataclass(frozen=True, slots=True)
class Speech:
    """A speech with its sound."""

    samples: NDArray[np.float32]
    """``[N]``, mono; what is beyond -1 and 1 is clipped where it is saved."""
    sample_rate_hz: int
    result: SpeechResult
    """Seed, knobs, codes, word times and trace, as the reports of the service have them."""

    def save(self, path: str | Path) -> None:
        """Write the sound to a file whose suffix tells the format: wav, flac, mp3, ogg."""
        soundfile.write(path, int16(self.samples), self.sample_rate_hz)


class Speaker:
    """A loaded model that speaks in the calling thread. One thread at a time."""

    def __init__(self, synthesizer: Synthesizer, recordings: str) -> None:
        self._synthesizer = synthesizer
        self._forget = finalize(self, shutil.rmtree, recordings, ignore_errors=True)
        self._spoken = 0

    @classmethod
    def load(cls, model: str | Path | None = None, **settings: Any) -> Self:
        """Load a model: a folder, a file or a name as `TTS_MODEL` has it; by default the built-in.

        ``settings`` are those of the service by their names in lower case, as ``device="cuda"``.
        Raises CheckpointError if the model cannot be used, ValueError if a setting is wrong.
        """
        chosen: dict[str, Any] = {"max_text_chars": 1_000_000} | settings
        if model is not None:
            chosen["model"] = str(model)
        recordings = mkdtemp(prefix="valle-serve-")
        try:
            wanted = Settings(**{"voices": recordings} | chosen)
            return cls(Synthesizer.load(wanted, catalog_of(wanted)), recordings)
        except BaseException:
            shutil.rmtree(recordings, ignore_errors=True)
            raise

    @property
    def voices(self) -> list[str]:
        """Names of the voices that it can speak as, those of recordings last."""
        return [voice.name for voice in self._synthesizer.planner.voices]

    @property
    def sample_rate_hz(self) -> int:
        """Samples a second."""
        return self._synthesizer.info.sample_rate_hz

    def add_voice(
        self, recording: str | Path, name: str = "", transcript: str | None = None
    ) -> str:
        """Add the voice of a recording, a file of one person who agreed to it; return its name.

        The name is by default that of the file. The voice is gone when the speaker is closed.
        Raises RecordingError if the file cannot be used, VoiceExists if the name is taken.
        """
        path = Path(recording)
        # In this process: unlike an upload, the file is the caller's own.
        read = read_recording(path.read_bytes())
        card = VoiceCard(transcript=transcript)
        return self._synthesizer.planner.voices.add(
            (name or path.stem).lower(), card, read, ""
        ).name

    def stream(
        self, text: str, voice: str | None = None, **knobs: Any
    ) -> Iterator[NDArray[np.float32]]:
        """Yield the sound of a text as it is made: samples ``[N]``, the first after a few frames.

        ``knobs`` are those of a request (docs/parameters.md), and ``language``, ``max_duration_s``.
        Raises a SpeechError if the text cannot be spoken, ValueError if a knob is wrong.
        """
        for chunk in self._chunks(text, voice, knobs):
            yield chunk.samples

    def speak(self, text: str, voice: str | None = None, **knobs: Any) -> Speech:
        """Return the speech of a text; fields and errors are those of `stream`."""
        chunks = list(self._chunks(text, voice, knobs))
        result = chunks[-1].result
        assert result is not None  # the last chunk has it
        samples = np.concatenate([chunk.samples for chunk in chunks])
        return Speech(samples, self.sample_rate_hz, result)

    def _chunks(
        self, text: str, voice: str | None, knobs: Mapping[str, Any]
    ) -> Iterator[AudioChunk]:
        self._spoken += 1
        reading = {name: knobs[name] for name in _READING if name in knobs}
        reported = {name: knobs[name] for name in _REPORTED if name in knobs}
        others = knobs.keys() - {*_READING, *_REPORTED, "max_duration_s"}
        job = SpeechJob(
            f"speech-{self._spoken}",
            text,
            SamplingParams.model_validate({name: knobs[name] for name in others}),
            voice,
            knobs.get("max_duration_s"),
            reading=ReadingOptions(**reading),
            report=ReportOptions(**reported),
        )
        yield from self._synthesizer.speak(self._synthesizer.planner.plan(job))

    def close(self) -> None:
        """Forget the voices that were added, and free what the model holds."""
        self._synthesizer.close()
        self._forget()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
