"""The judges together, and all that they found out about one recording."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from lab.training.judging.endings import Ending, find_speech, judge_ending
from lab.training.judging.judges import (
    HEARING_RATE_HZ,
    Dnsmos,
    Errors,
    VoiceJudge,
    Whisper,
    count_errors,
    in_words,
    resample,
)
from lab.training.judging.speakers import Samples, Speech
from lab.training.speech.corpus import SAMPLE_RATE_HZ


@dataclass(frozen=True)
class Judgement:
    """All that was found out about one recording."""

    text: str
    seed: int
    duration_s: float
    spoken_s: float  # without silence at both ends
    teacher_spoken_s: float
    wall_s: float | None
    heard: Mapping[str, str]  # by judge
    errors: Mapping[str, Errors]
    ending: Ending
    dnsmos: float | None
    similarity: float | None


class Panel:
    """The judges; they treat every speaker alike."""

    def __init__(
        self,
        ears: Mapping[str, Whisper],
        teacher: Callable[[str, int], Samples],
        dnsmos: Dnsmos | None = None,
        voice: VoiceJudge | None = None,
        *,
        as_read: bool = False,
    ) -> None:
        self._written: Callable[[str], str] = in_words if as_read else str
        self.ears, self.dnsmos, self.voice = ears, dnsmos, voice
        self._teacher = teacher
        self._readings: dict[str, Samples] = {}

    def judge(self, text: str, seed: int, speech: Speech) -> Judgement:
        """Judge one recording of ``text``."""
        if text not in self._readings:  # the teacher's durations do not depend on its seed
            self._readings[text] = self._teacher(text, 0)
        reading = self._readings[text]
        audible = resample(speech.samples, SAMPLE_RATE_HZ, HEARING_RATE_HZ)
        heard = {name: ear.hear(audible) for name, ear in self.ears.items()}
        return Judgement(
            text=text,
            seed=seed,
            duration_s=len(speech.samples) / SAMPLE_RATE_HZ,
            spoken_s=find_speech(speech.samples, SAMPLE_RATE_HZ).spoken_s,
            teacher_spoken_s=find_speech(reading, SAMPLE_RATE_HZ).spoken_s,
            wall_s=speech.wall_s,
            heard=heard,
            errors={
                name: count_errors(self._written(text), self._written(words))
                for name, words in heard.items()
            },
            ending=judge_ending(
                speech.samples,
                reading,
                SAMPLE_RATE_HZ,
                codes=speech.codes,
                gave_up=speech.gave_up,
                trimmed_s=speech.trimmed_s,
            ),
            dnsmos=self.dnsmos.rate(audible) if self.dnsmos else None,
            similarity=self.voice.compare(audible) if self.voice else None,
        )
