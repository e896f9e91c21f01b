"""Speaks texts in this process, many together, and tells how each take follows its text."""

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from time import monotonic
from typing import Final

import numpy as np
from numpy.typing import NDArray

from app.engine.admission.playback import Playback
from app.engine.ar.job import ArJob
from app.engine.ar.sequence import ArSequence
from app.engine.backend.pipeline import RunningSpeech
from app.engine.backend.synthesizer import Synthesizer
from app.engine.core import AudioChunk, Plan, SpeechResult

_ROWS: Final = 32
"""Rows of level 0 that are sampled together; a guided sequence takes two."""
_FRAMES, _CLEAR = 5, 0.7
"""Attention to earlier symbols from which speech goes back: so many frames in a row, on average."""


@dataclass
class _Running:
    """A text that is spoken."""

    number: int
    speech: RunningSpeech
    chunks: list[AudioChunk] = field(default_factory=list)
    sequences: list[ArSequence] = field(default_factory=list)

    def note_sequence(self) -> None:
        """Keep the sequence that is sampled: its job forgets it when it ends."""
        assert isinstance(self.speech.job, ArJob)
        utterance = self.speech.job.utterance
        if isinstance(utterance, ArSequence) and utterance not in self.sequences[-1:]:
            self.sequences.append(utterance)


@dataclass(frozen=True)
class Take:
    """A text as it was spoken."""

    result: SpeechResult
    samples: NDArray[np.float32]  # [N]
    sample_rate_hz: int
    returns: bool
    """Whether speech goes back in its text, in frames that were kept, before the text ends."""


def spoken_together(speaker: Synthesizer, plans: Sequence[Plan]) -> Iterator[tuple[int, Take]]:
    """Yield the take of each plan with its number as it ends, many spoken at a time.

    Codes do not depend on what is spoken beside them.
    """
    waiting = deque(enumerate(plans))
    slots = max(_ROWS, *(plan.rows for plan in plans)) if plans else 0
    running: list[_Running] = []
    with closing(speaker.ar.called_batch(slots)) as batch:
        while waiting or running:
            taken = sum(plans[one.number].rows for one in running)
            while waiting and taken + waiting[0][1].rows <= slots:
                number, plan = waiting.popleft()
                taken += plan.rows
                sound = speaker.audio.audio_stream(plan, Playback(monotonic()))
                running.append(_Running(number, RunningSpeech(batch, plan, sound)))
            batch.step([one.speech.job for one in running])
            for one in running:
                one.chunks += one.speech.chunks()
                one.note_sequence()
            for one in [one for one in running if one.speech.job.over]:
                running.remove(one)
                batch.end(one.speech.job)
                yield one.number, _take(one)


def _take(ended: _Running) -> Take:
    result = ended.chunks[-1].result
    assert result is not None  # the last chunk of a job has it
    samples = np.concatenate([chunk.samples for chunk in ended.chunks])
    followed = [one.progress for one in ended.sequences if one.progress is not None]
    # Behind the text attention may be anywhere: what sounds there is sound after the last word.
    returns = any(goes_back(one.path.behind[: one.spoken]) for one in followed)
    return Take(result, samples, ended.chunks[-1].sample_rate_hz, returns)


def goes_back(behind: Sequence[float]) -> bool:
    """Return whether frames clearly speak earlier symbols, by `MonotonicPath.behind`."""
    for end in range(_FRAMES, len(behind) + 1):
        newest = behind[end - _FRAMES : end]
        if min(newest) > 0 and sum(newest) / _FRAMES >= _CLEAR:
            return True
    return False
