"""The whole way of speech, in one thread: AR, NAR, codec.

An engine does the same on threads of its own. One steps the batch, which samples the first code of
each frame (AR). Another pushes what the batch has sampled into the streams of sound, which sample
the other codes (NAR) and decode them (codec). Here both take turns.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from time import monotonic, perf_counter
from typing import Final

from app.engine.admission.playback import Playback
from app.engine.backend.audio_maker import AudioMaker
from app.engine.backend.batch_factory import BatchFactory
from app.engine.core import AudioChunk, Plan, Progress, SpeechResult
from app.engine.interface import ArStream, AudioStream, RunningBatch
from app.engine.messages import ArMessage

OnStep = Callable[[float], bool]
"""Called after every step with the seconds that it took; False ends all jobs, without results."""

OnProgress = Callable[[Progress], bool]
"""Called after every step; False stops the job."""


def go_on(_: float) -> bool:
    """Go on after every step."""
    return True


class RunningSpeech:
    """A job in a batch, what is sampled of it and not pushed yet, and what makes its sound."""

    def __init__(self, batch: RunningBatch, plan: Plan, sound: AudioStream | None = None) -> None:
        self.sound: Final = sound
        """None: what is sampled stays in `sampled`."""
        self.sampled: Final = deque[ArMessage]()
        self.job: Final[ArStream] = batch.begin(plan, self.sampled.append)

    def chunks(self) -> Iterator[AudioChunk]:
        """Yield the audio of what is sampled; raises the error with which the job ended."""
        while self.sound is not None and self.sampled:
            yield from self.sound.push(self.sampled.popleft())
        if self.job.error is not None:
            raise self.job.error


def run(
    batch: RunningBatch, speeches: Sequence[RunningSpeech], on_step: OnStep = go_on
) -> Iterator[AudioChunk]:
    """Speak some jobs together to their ends; yield their audio, the last chunk with the result.

    Raises a SpeechError as the first job that fails.
    """
    while running := [speech for speech in speeches if not speech.job.over]:
        began_s = perf_counter()
        batch.step([speech.job for speech in running])
        if not on_step(perf_counter() - began_s):
            return
        for speech in running:
            yield from speech.chunks()


def speak(
    ar: BatchFactory, audio: AudioMaker, plan: Plan, on_progress: OnProgress | None = None
) -> Iterator[AudioChunk]:
    """Yield the audio of one job, the last chunk with the result, for callers without an engine.

    ``on_progress`` is called after every step; False ends the job without a result.
    """
    playback = Playback(monotonic() - plan.text_s)
    with (
        closing(ar.called_batch(plan.rows)) as batch,
        closing(audio.audio_stream(plan, playback)) as sound,
    ):
        speech = RunningSpeech(batch, plan, sound)

        def goes_on(_: float) -> bool:
            return on_progress is None or on_progress(speech.job.progress)

        yield from run(batch, [speech], goes_on)


def spoken(ar: BatchFactory, audio: AudioMaker, plan: Plan) -> SpeechResult:
    """Speak a job by itself, and return its result."""
    *_, last = speak(ar, audio, plan)
    assert last.result is not None  # the last chunk has it
    return last.result
