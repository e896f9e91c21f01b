"""The audio of a job against the clock, as a listener hears it who plays it as it comes.

A speech that is sent whole has no such listener, and one that gives way may have to wait. They
count as if a listener began a second after their submission and played at a quarter of the speed:
so they are behind streams that need their audio now, and of two that which has less comes first:
less audio, or less work where a second of audio takes more than one.
"""

from time import monotonic

LEAST_LEFT_S = 0.5
"""Seconds of audio assumed to be left of a job that is longer than expected."""

WHOLE_AFTER_S = 1.0
WHOLE_SLOWER = 4.0
"""When the playback of a speech that is sent whole is assumed to begin, and how much slower than
its audio it is assumed to be."""


class Playback:
    """When the audio of a job comes, and whether its playback stalls; times are `time.monotonic`'s.

    A job that is not ``played`` while it is made is sent whole.
    """

    def __init__(self, submitted_s: float, *, played: bool = True) -> None:
        self.submitted_s = submitted_s
        self.played = played
        self.gives_way = not played  # to those that are promised to be made in time
        self.first_s: float | None = None  # when the playback began
        self.audio_s = 0.0
        self.underrun_s = 0.0  # how long the playback stalled for want of audio
        # Of gaps, how long the text was waited for, which whoever writes it has made
        self.unwritten_s = 0.0
        self.worked_s = 0.0  # how long the workers worked on it
        self.waited_s = 0.0  # how long its listener, who had some, let it wait
        self.expected_s = 0.0  # audio expected in all; 0 for a job that costs nothing
        # Audio to buffer before the playback begins: on a machine slower than real time, a playback
        # that began at once would stall.
        self.prebuffer_s = 0.0
        # It does not begin before then, by `time.monotonic`: the text comes too slowly.
        self.begins_s = 0.0
        self._words_wait_s = 0.0  # how long words were waited for, until they came
        self._words_since_s: float | None = None  # since when they are
        self._words_counted_s = 0.0  # of the first, what was before audio was added last

    @property
    def runs_out_s(self) -> float:
        """When the audio so far is played, by `time.monotonic`; before it begins, `submitted_s`."""
        if self.first_s is None:
            return self.submitted_s
        return self.first_s + self.audio_s + self.underrun_s + self.unwritten_s + self.waited_s

    @property
    def due_s(self) -> float:
        """When more audio is due, by `time.monotonic`."""
        if not self.gives_way:
            return self.runs_out_s
        served_s = max(self.audio_s, self.worked_s)
        return self.submitted_s + WHOLE_AFTER_S + WHOLE_SLOWER * served_s

    @property
    def lead_s(self) -> float:
        """Seconds of audio that are made and not played; 0 before the playback begins."""
        return 0.0 if self.first_s is None else max(0.0, self.runs_out_s - monotonic())

    def lead_of(self, sampled_s: float) -> float:
        """Return by how many seconds level 0, sampled so far, is ahead of the playback.

        What gives way is not further ahead than what is sampled: of such jobs, those that have
        least come first.
        """
        if self.gives_way:
            elapsed_s = monotonic() - self.submitted_s
            served_s = max(sampled_s, self.worked_s)
            return min(sampled_s, WHOLE_AFTER_S + WHOLE_SLOWER * served_s - elapsed_s)
        if self.first_s is None:
            return sampled_s
        return sampled_s - (monotonic() - self.first_s - self.waited_s)

    @property
    def left_s(self) -> float:
        """Seconds of audio still expected; until the job ends at least `LEAST_LEFT_S`."""
        return max(self.expected_s - self.audio_s, min(LEAST_LEFT_S, self.expected_s))

    @property
    def first_audio_s(self) -> float:
        """Seconds from the submission to the beginning of the playback; 0 before."""
        return 0.0 if self.first_s is None else self.first_s - self.submitted_s

    def add(self, audio_s: float) -> None:
        """Count so many seconds of audio that are available now."""
        if not audio_s:
            return
        self.audio_s += audio_s
        now_s = monotonic()
        words_wait_s = self._words_wait_s - self._words_counted_s
        self._words_counted_s += words_wait_s
        if self.first_s is not None:
            late_s = max(0.0, now_s - (self.runs_out_s - audio_s))
            words_s = min(late_s, words_wait_s)
            self.unwritten_s += words_s
            self.underrun_s += late_s - words_s
        elif self.may_begin:
            self.first_s = now_s

    @property
    def may_begin(self) -> bool:
        """Whether there is enough audio to begin with, and the text comes fast enough."""
        enough = self.audio_s > 0.0 and self.audio_s >= self.prebuffer_s
        return enough and monotonic() >= self.begins_s

    def wait_for_words(self, waits: bool) -> None:
        """Note whether nothing can be sampled before more of the text is written."""
        now_s = monotonic()
        if waits:
            self._words_since_s = self._words_since_s or now_s
        elif self._words_since_s is not None:
            self._words_wait_s += now_s - self._words_since_s
            self._words_since_s = None

    def put_off(self, unread_s: float) -> None:
        """Note that its listener has not read so many seconds of audio, nor heard them."""
        if self.first_s is not None:
            self.waited_s += max(0.0, monotonic() + unread_s - self.runs_out_s)

    def begin(self) -> None:
        """Begin the playback, unless it has begun."""
        if self.first_s is None:
            self.first_s = monotonic()
