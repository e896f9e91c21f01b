"""How an engine is: the stages of its life, and what a health check may see."""

from dataclasses import dataclass
from typing import Literal

from app.engine.interface import GoldenResult

State = Literal["new", "loading", "warming", "ready", "draining", "stopped", "failed"]

WAITS_FOR: dict[State, str] = {
    "new": "the engine to start",
    "loading": "the model to load",
    "warming": "the warm-up to end",
    "draining": "nothing: it is shutting down",
    "stopped": "nothing: it is shut down",
    "failed": "nothing: it cannot go on",
}

STALLED_AFTER_S = 60.0
"""A worker that has not moved for this long, while it should, is taken for stuck."""


@dataclass(frozen=True, slots=True)
class EngineStatus:
    """How the engine is, at a glance.

    Attributes:
        state: Where in its life it is.
        waits_for: Why it takes no jobs; None if it does.
        error: Why it failed.
        queued: Jobs that wait or are being read.
        running: Jobs that are being spoken.
        beat_age_s: Seconds since the worker moved that moved the longest time ago.
        slots: Rows of the batch.
        used_slots: Rows that jobs have.
        deterministic: Whether a job among others had the codes that it has alone, when that was
            tried at the start; None before.
        golden: How the model's golden requests compared at the start, where that was asked for.
        streams: How many listeners this machine serves at once without a gap, as measured; None
            before.
    """

    state: State
    waits_for: str | None
    error: str | None
    queued: int
    running: int
    beat_age_s: float
    slots: int = 0
    used_slots: int = 0
    deterministic: bool | None = None
    golden: GoldenResult | None = None
    streams: int | None = None

    @property
    def healthy(self) -> bool:
        """Whether restarting the process would be of no use."""
        stalled = self.state == "ready" and self.beat_age_s > STALLED_AFTER_S
        return self.state != "failed" and not stalled
