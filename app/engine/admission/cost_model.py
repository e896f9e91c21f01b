"""What audio costs this machine, as measured, and what follows for one more request.

Three things are remembered of a cost: what it was lately, what it was for longer, and what it is
for a speech that runs by itself. While the machine works the first two count. After some seconds
without work only the last does: what a crowd cost, or a machine that others kept busy, says nothing
of the next request. A speech of an unusual kind (`Plan.usual`) counts in none of them.
"""

import math
from collections import OrderedDict
from copy import deepcopy
from time import monotonic
from typing import Final

from app.engine.core import USUAL_PHONEME_S

SHARE: Final = 0.8
"""Of the measured speed, what admission counts on: each further stream costs a little more, and
audio comes in chunks."""

SHORT_S = 6.0
LONG_S = 60.0
"""Time constants of the two moving averages of a cost, in seconds of audio. The larger average
counts: a machine that became slower is noticed at once, a faster one only after a while."""

SHORT_STEPS = 100.0
LONG_STEPS = 5000.0
"""The same of the time of a step of level 0, in steps."""

CHUNK_DECAY = 0.98
JOB_DECAY = 0.995
"""What a peak keeps at each further measurement: of work on chunks, and once a job."""
JOB_GROWTH: Final = 3.0
"""At most how many times as high a peak becomes by one job: one may be stopped by a debugger."""

PEAK_S: Final = 30.0
"""Time constant by which a peak is forgotten, besides, in seconds of the clock."""

RESTED_S: Final = 3.0
"""Seconds without work after which costs are those of a speech by itself."""

SHORTEST_PHONEME_S: Final = 0.04
"""Seconds a phoneme symbol of a voice that has not spoken yet, at least: the built-in voices take
0.043 to 0.057, with symbols of stress and spaces."""

_MOST_VOICES: Final = 256  # whose pace is remembered

USUAL_S: Final = 5.0
"""Seconds of speech assumed of a job whose text is not known."""

SpeakerKey = tuple[str | None, str]
"""Owner and key of a voice."""

_NEWEST = 0.1  # weight of the newest measurement in averages over jobs


class MovingCost:
    """Seconds of work a second of audio, or a step: the largest of exponential moving averages.

    Their time constants are in seconds of audio, or in steps.

    Attributes:
        each: Seconds of work a second of audio, or a step; 0 before the first measurement.
        work_s: Seconds of work that the longest average remembers.
    """

    def __init__(self, *time_constants: float) -> None:
        self._sums = dict.fromkeys(time_constants, (0.0, 0.0))  # seconds of work, and what it made
        self.each = 0.0
        self.work_s = 0.0

    def note(self, work_s: float, made: float = 1.0) -> None:
        """Count seconds of work, and the seconds of audio or the steps made; either may be 0."""
        each = 0.0
        longest_s = 0.0
        for constant, (worked_s, all_made) in self._sums.items():
            kept = math.exp(-made / constant)
            worked_s = kept * worked_s + work_s
            all_made = kept * all_made + made
            self._sums[constant] = worked_s, all_made
            each = max(each, worked_s / all_made if all_made else 0.0)
            longest_s = max(longest_s, worked_s)
        self.each = each
        self.work_s = longest_s


class DecayingMax:
    """The maximum of some durations, which decays with each further one and with time."""

    def __init__(self, decay: float, growth: float = math.inf) -> None:
        self._decay = decay
        self._growth = growth
        self.seconds = 0.0
        self._at_s = 0.0

    def note(self, seconds: float) -> None:
        """Count a duration."""
        now_s = monotonic()
        if self.seconds:
            seconds = min(seconds, self._growth * self.seconds)
            kept = self._decay * math.exp((self._at_s - now_s) / PEAK_S)
            seconds = max(seconds, kept * self.seconds)
        self.seconds = seconds
        self._at_s = now_s


class _Costs:
    """The costs of each worker."""

    def __init__(self) -> None:
        self.ar = MovingCost(SHORT_S, LONG_S)
        self.sound = MovingCost(SHORT_S, LONG_S)
        self.step = MovingCost(SHORT_STEPS, LONG_STEPS)
        self.chunk = DecayingMax(CHUNK_DECAY)
        self.admission = DecayingMax(CHUNK_DECAY)
        self.start = DecayingMax(JOB_DECAY, JOB_GROWTH)


class CostModel:
    """What a second of audio costs each worker; each worker notes its own costs.

    Costs are wall time, so they are higher where the workers share a processor. They are added, as
    if the workers took turns: in parallel they are faster where each has a processor to itself, but
    not where a quota or other programs leave them one between them.
    """

    def __init__(self, throttle_s: float = 0.0) -> None:
        self._throttle_s = throttle_s
        self._lately = _Costs()
        self._single = _Costs()
        self.is_single = True  # whether at most one speech is in work
        self._idle_since_s: float | None = None
        self._phoneme_s = USUAL_PHONEME_S
        # Seconds a phoneme symbol of each voice, the last heard last
        self._voices: OrderedDict[SpeakerKey, float] = OrderedDict()

    def begin(self, others: int) -> None:
        """Note that a speech begins beside so many others."""
        self._rest()
        self.is_single = not others
        self._idle_since_s = None

    def end(self, left: int) -> None:
        """Note that a speech has ended, and so many are left."""
        if not left:
            self._idle_since_s = monotonic()

    def _rest(self) -> None:
        """Forget what was while the machine worked, once it has not for a while."""
        since_s = self._idle_since_s
        if since_s is not None and monotonic() - since_s >= RESTED_S:
            self._idle_since_s = None
            self._lately = deepcopy(self._single)

    @property
    def _costs(self) -> _Costs:
        self._rest()
        return self._lately

    def _noted(self) -> tuple[_Costs, ...]:
        return (self._lately, self._single) if self.is_single else (self._lately,)

    def note_ar(self, work_s: float, sound_s: float) -> None:
        """Count a step of level 0 that drew ``sound_s`` seconds of speech, over all its rows."""
        for costs in self._noted():
            costs.ar.note(work_s, sound_s)
            costs.step.note(work_s)

    def note_blocking(self, work_s: float) -> None:
        """Count work on several chunks at once, which cannot be interrupted."""
        for costs in self._noted():
            costs.chunk.note(work_s)

    def note_audio(self, work_s: float, sound_s: float) -> None:
        """Count the NAR levels and the codec of one chunk."""
        for costs in self._noted():
            costs.chunk.note(work_s)
            costs.sound.note(work_s, sound_s)

    def note_admission(self, work_s: float) -> None:
        """Count the prefill of a job, during which no step is made for the others."""
        for costs in self._noted():
            costs.admission.note(work_s)

    def note_start(self, start_s: float) -> None:
        """Count the seconds from a job's admission to its first audio, while no other ran."""
        for costs in (self._lately, self._single):
            costs.start.note(start_s)

    def note_spoken(
        self, phonemes: float, speech_s: float, voice: SpeakerKey | None = None
    ) -> None:
        """Count a job of so many phoneme symbols and seconds of speech; no voice if of several."""
        if not phonemes:
            return
        each_s = speech_s / phonemes
        self._phoneme_s += _NEWEST * (each_s - self._phoneme_s)
        if voice is not None:
            known_s = self._voices.pop(voice, SHORTEST_PHONEME_S)
            self._voices[voice] = known_s + _NEWEST * (each_s - known_s)
            if len(self._voices) > _MOST_VOICES:
                self._voices.popitem(last=False)

    @property
    def cost(self) -> float:
        """Seconds of work a second of audio takes; 0 before any measurement."""
        costs = self._costs
        return costs.ar.each + costs.sound.each

    @property
    def speed(self) -> float:
        """Seconds of audio a second that admission counts on; infinite before any measurement."""
        return SHARE / self.cost if self.cost else math.inf

    def delay_s(self, others: int, at_once: int = 1) -> float:
        """Return the longest time for which a stream that plays waits because others begin.

        A chunk or a prefill that has begun comes first; under a quota all of the others' first
        audio, as all workers share the processor time.
        """
        costs = self._costs
        shared_s = costs.start.seconds if self._throttle_s else 0.0
        chunks_s = math.ceil(others / at_once) * costs.chunk.seconds
        return chunks_s + others * (costs.admission.seconds + shared_s)

    @property
    def streams(self) -> int | None:
        """How many streams can be made in real time at once; None before any measurement."""
        return None if math.isinf(self.speed) else math.floor(self.speed)

    def chunk_s(self, frames: int) -> float:
        """Return the time to sample frames of level 0 and to make the chunk that they end.

        No other is made meanwhile. A quota may stop the steps once more than measured.
        """
        costs = self._costs
        step_s = costs.step.each / SHARE
        return frames * step_s + costs.chunk.seconds + self._throttle_s

    def wait_s(self, jobs: int, each_s: float = USUAL_S) -> float:
        """Return about how long the last of so many jobs, of so many seconds each, waits.

        Of those before it, as many must end as there are more than `streams`.
        """
        if self.streams is None:
            return 0.0
        ends_first = max(0, jobs - max(1, self.streams))
        return each_s * ends_first / (self.streams or self.speed)

    def first_audio_s(self, jobs: int, each_s: float = USUAL_S) -> float:
        """Return about how many seconds the first audio of the last of so many jobs takes."""
        return self.wait_s(jobs, each_s) + self._costs.start.seconds

    def speech_s(self, phonemes: float) -> float:
        """Return the expected seconds of audio of so many phoneme symbols."""
        return self._phoneme_s * phonemes

    def least_speech_s(self, phonemes: float, voice: SpeakerKey | None) -> float:
        """Return the expected seconds of speech of so many phoneme symbols of a voice.

        If it has not spoken, those of the quickest voice: sound that waits for words waits too long
        rather than not long enough.
        """
        each_s = SHORTEST_PHONEME_S
        if voice is not None:
            each_s = self._voices.get(voice, each_s)
        return each_s * phonemes
