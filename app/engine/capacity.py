"""How many seconds of audio this machine makes a second, as measured while it does."""

import math
from typing import Final

from app.engine.job import USUAL_PHONEME_S

SHARE: Final = 0.8
"""Of the measured speed, what admission counts on: each further stream costs a little more, and
audio comes in chunks."""

SHORT_S, LONG_S = 6.0, 60.0
"""Time constants of the two moving averages of a cost, in seconds of audio. The larger average
counts: a machine that became slower is noticed at once, a faster one only after a while."""

SHORT_STEPS, LONG_STEPS = 100.0, 5000.0
"""The same of the time of a step of level 0, in steps."""

CHUNK_DECAY, JOB_DECAY = 0.98, 0.995
"""What a peak keeps at each further measurement: of work on chunks, and once a job."""
JOB_GROWTH: Final = 3.0
"""At most how many times as high a peak becomes by one job: one may be stopped by a debugger."""
_NEWEST: Final = 0.1  # weight of the newest measurement in averages over jobs


class Cost:
    """Seconds of work a second of audio, or a step, as an exponential moving average.

    Args:
        time_constant: Of the average, in seconds of audio or in steps.
    """

    def __init__(self, time_constant: float) -> None:
        self._time_constant = time_constant
        self._work_s = self._made = 0.0

    def note(self, work_s: float, made: float = 1.0) -> None:
        """Count seconds of work, and the seconds of audio or the steps made; either may be 0."""
        kept = math.exp(-made / self._time_constant)
        self._work_s = kept * self._work_s + work_s
        self._made = kept * self._made + made

    @property
    def each(self) -> float:
        """Seconds of work a second of audio, or a step; 0 before the first measurement."""
        return self._work_s / self._made if self._made else 0.0


class Peak:
    """The maximum of some durations, which decays with each further one."""

    def __init__(self, decay: float, growth: float = math.inf) -> None:
        self._decay, self._growth = decay, growth
        self.seconds = 0.0

    def note(self, seconds: float) -> None:
        """Count a duration."""
        if self.seconds:
            seconds = min(seconds, self._growth * self.seconds)
        self.seconds = max(seconds, self._decay * self.seconds)


class Capacity:
    """What a second of audio costs each worker; each worker notes its own costs.

    Costs are wall time, so they are higher where the workers share a processor. They are added, as
    if the workers took turns: in parallel they are faster where each has a processor to itself, but
    not where a quota or other programs leave them one between them.
    """

    def __init__(self, throttle_s: float = 0.0) -> None:
        self._throttle_s = throttle_s
        self._level_0 = Cost(SHORT_S), Cost(LONG_S)
        self._sound = Cost(SHORT_S), Cost(LONG_S)
        self._chunk, self._admission = Peak(CHUNK_DECAY), Peak(CHUNK_DECAY)
        self._step = Cost(SHORT_STEPS), Cost(LONG_STEPS)
        self._alone, self._beside = (Peak(JOB_DECAY, JOB_GROWTH) for _ in range(2))
        self._phoneme_s = USUAL_PHONEME_S

    def note_level_0(self, work_s: float, sound_s: float) -> None:
        """Count a step of level 0 that drew ``sound_s`` seconds of speech, over all its rows."""
        for cost in self._level_0:
            cost.note(work_s, sound_s)
        for cost in self._step:
            cost.note(work_s)

    def note_blocking(self, work_s: float) -> None:
        """Count work on several chunks at once, which cannot be interrupted."""
        self._chunk.note(work_s)

    def note_sound(self, work_s: float, sound_s: float) -> None:
        """Count the finer levels and the codec of one chunk."""
        self._chunk.note(work_s)
        for cost in self._sound:
            cost.note(work_s, sound_s)

    def note_admission(self, work_s: float) -> None:
        """Count the prefill of a job, during which no step is made for the others."""
        self._admission.note(work_s)

    def note_start(self, start_s: float, *, beside: bool = False) -> None:
        """Count the seconds from a job's expected admission to its first audio.

        Args:
            start_s: The seconds.
            beside: Whether other streams ran or waited when its admission was forecast.
        """
        (self._beside if beside else self._alone).note(start_s)

    def note_spoken(self, phonemes: float, speech_s: float) -> None:
        """Count a job of so many phoneme symbols and seconds of audio, for `speech_s`."""
        if phonemes:
            self._phoneme_s += _NEWEST * (speech_s / phonemes - self._phoneme_s)

    @property
    def speed(self) -> float:
        """Seconds of audio a second that admission counts on; infinite before any measurement."""
        costs = self._level_0, self._sound
        together = sum(max(cost.each for cost in worker) for worker in costs)
        return SHARE / together if together else math.inf

    @property
    def blocking_s(self) -> float:
        """Longest time for which a stream that plays waits because another begins.

        The most urgent stream comes next, but after the chunk or the prefill that has begun: a
        listener needs so many seconds of audio buffered not to notice. Under a quota all workers
        share the processor time, so the first audio of the other comes out of it as well.
        """
        return self.delay_s(1)

    def delay_s(self, others: int, at_once: int = 1) -> float:
        """Return the longest time for which a stream waits because so many others begin.

        Args:
            others: Their number.
            at_once: How many chunks are made at once.
        """
        shared_s = self._alone.seconds if self._throttle_s else 0.0
        chunks_s = math.ceil(others / at_once) * self._chunk.seconds
        return chunks_s + others * (self._admission.seconds + shared_s)

    @property
    def streams(self) -> int | None:
        """How many streams can be made in real time at once; None before any measurement."""
        return None if math.isinf(self.speed) else math.floor(self.speed)

    def chunk_s(self, frames: int) -> float:
        """Return the time in which frames of level 0 are drawn and the chunk that they end is made.

        If no other is made meanwhile. Steps take longer with each further stream, and a quota may
        stop them once more than measured.

        Args:
            frames: How many are drawn; a step draws one of each job.
        """
        step_s = max(cost.each for cost in self._step) / SHARE
        return frames * step_s + self._chunk.seconds + self._throttle_s

    def start_s(self, *, beside: bool) -> float:
        """Return the longest time from a job's expected admission to its first audio.

        It is as long as measured, and by `blocking_s` longer: another job may begin meanwhile.
        Beside other streams a job waits for the work that has begun, and then for `blocking_s` of
        audio, which is buffered before it is played. Starts of both kinds are measured apart;
        before the first beside others, those two are added to a start alone.

        Args:
            beside: Whether other streams run when it is admitted.
        """
        start_s = self._alone.seconds
        if beside:
            guess_s = start_s + self.blocking_s * (1.0 + 1.0 / self.speed)
            start_s = self._beside.seconds or guess_s
        return start_s + self.blocking_s

    def speech_s(self, phonemes: float) -> float:
        """Return the expected seconds of audio of so many phoneme symbols."""
        return self._phoneme_s * phonemes
