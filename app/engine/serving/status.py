"""The status of an engine: its state, and what a health check reports."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from app.engine.interface import GoldenResult

EngineState = Literal["new", "loading", "warming", "ready", "draining", "stopped", "failed"]

WAITS_FOR: dict[EngineState, str] = {
    "new": "the engine to start",
    "loading": "the model to load",
    "warming": "the warm-up to end",
    "draining": "nothing: it is shutting down",
    "stopped": "nothing: it is shut down",
    "failed": "nothing: it cannot go on",
}

STALLED_AFTER_S = 60.0
"""Seconds without progress of a worker after which a ready engine counts as unhealthy."""


@dataclass(frozen=True, slots=True)
class EngineStatus:
    """The status of an engine at one moment."""

    state: EngineState
    waits_for: str | None  # what it waits for before it accepts jobs; None if it accepts them
    error: str | None
    queued: int  # how many jobs wait, their text read or not
    running: int
    # Seconds since the last sign of life of the worker that is silent the longest.
    beat_age_s: float
    # The same of each part: level_0, sound, text, recordings; 0 where one has nothing to do.
    beats_s: Mapping[str, float] = field(default_factory=dict)
    slots: int = 0
    used_slots: int = 0
    # Whether a job had the same codes alone and among others in the warm-up; None before.
    deterministic: bool | None = None
    # The comparison of the model's golden requests in the warm-up, if asked for.
    golden: GoldenResult | None = None
    # How many streams this machine makes in real time at once; None before it was measured.
    streams: int | None = None

    @property
    def healthy(self) -> bool:
        """Whether the process need not be restarted."""
        stalled = self.state == "ready" and self.beat_age_s > STALLED_AFTER_S
        return self.state != "failed" and not stalled
