"""What a listener hears who starts at the first chunk: when it comes, and whether it stalls."""

from time import monotonic

LEAST_LEFT_S = 0.5
"""Of a job that is longer than was expected, and not over."""


class Playback:
    """A job's sound against the clock.

    Attributes:
        submitted_s: When the job came, by `time.monotonic`.
        first_s: When the first sound came; None before.
        given_s: Seconds of sound so far.
        underrun_s: Seconds that the listener had to wait amid the sound.
        expected_s: Seconds of sound that there will likely be in all; 0 for what costs nothing.
        hold_s: Seconds of sound that are made before the first is given: on a machine that makes
            less than a second of sound a second, a stream that began at once would stall.
        expected_first_s: Seconds from the submission to the first sound, as forecast when the job
            lined up; None before.
    """

    def __init__(self, submitted_s: float) -> None:
        """Begin with no sound."""
        self.submitted_s = submitted_s
        self.first_s: float | None = None
        self.given_s = self.underrun_s = self.expected_s = self.hold_s = 0.0
        self.expected_first_s: float | None = None

    @property
    def runs_out_s(self) -> float:
        """When the listener has heard all there is; before the first sound, when the job came."""
        if self.first_s is None:
            return self.submitted_s
        return self.first_s + self.given_s + self.underrun_s

    @property
    def lead_s(self) -> float:
        """Seconds of sound that the listener has before him; 0 before the first."""
        return 0.0 if self.first_s is None else max(0.0, self.runs_out_s - monotonic())

    @property
    def left_s(self) -> float:
        """Seconds of sound that are likely still to be made; some, until the job is over."""
        return max(self.expected_s - self.given_s, min(LEAST_LEFT_S, self.expected_s))

    @property
    def first_audio_s(self) -> float:
        """Seconds from the submission to the first sound; 0 where there is none."""
        return 0.0 if self.first_s is None else self.first_s - self.submitted_s

    def give(self, sound_s: float) -> None:
        """Note that so many seconds of sound are there now."""
        if not sound_s:
            return
        self.given_s += sound_s
        now_s = monotonic()
        if self.first_s is not None:
            self.underrun_s += max(0.0, now_s - (self.runs_out_s - sound_s))
        elif self.given_s >= self.hold_s:
            self.first_s = now_s

    def finish(self) -> None:
        """Note that all sound there is has been given: nothing is held any more."""
        if self.first_s is None:
            self.first_s = monotonic()
