"""The audio of a job against the clock, as a listener hears it who plays it as it comes."""

from time import monotonic

LEAST_LEFT_S = 0.5
"""Seconds of audio assumed to be left of a job that is longer than expected."""


class Playback:
    """When the audio of a job comes, and whether its playback stalls.

    Attributes:
        submitted_s: When the job was submitted, by `time.monotonic`.
        first_s: When the playback began, by `time.monotonic`; None before.
        audio_s: Seconds of audio so far.
        underrun_s: Seconds that the playback stalled for want of audio.
        expected_s: Seconds of audio expected in all; 0 for a job that costs nothing.
        prebuffer_s: Seconds of audio to buffer before the playback begins: on a machine slower than
            real time, a playback that began at once would stall.
        expected_first_s: Seconds from the submission to the first audio, as forecast once the text
            was read; None before.
    """

    def __init__(self, submitted_s: float) -> None:
        """Begin with no audio."""
        self.submitted_s = submitted_s
        self.first_s: float | None = None
        self.audio_s = self.underrun_s = self.expected_s = self.prebuffer_s = 0.0
        self.expected_first_s: float | None = None

    @property
    def runs_out_s(self) -> float:
        """When the audio so far is played, by `time.monotonic`; before it begins, `submitted_s`."""
        if self.first_s is None:
            return self.submitted_s
        return self.first_s + self.audio_s + self.underrun_s

    @property
    def lead_s(self) -> float:
        """Seconds of audio that are made and not played; 0 before the playback begins."""
        return 0.0 if self.first_s is None else max(0.0, self.runs_out_s - monotonic())

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
        if self.first_s is not None:
            self.underrun_s += max(0.0, now_s - (self.runs_out_s - audio_s))
        elif self.audio_s >= self.prebuffer_s:
            self.first_s = now_s

    def finish(self) -> None:
        """Begin the playback if it has not begun: no more audio will come to buffer."""
        if self.first_s is None:
            self.first_s = monotonic()
