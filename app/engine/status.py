"""How an engine is: the stages of its life, and what a health check may see."""

from dataclasses import dataclass
from typing import Literal

State = Literal["new", "loading", "warming", "ready", "draining", "stopped", "failed"]

WAITS_FOR: dict[State, str] = {
    "new": "the engine to start",
    "loading": "the model to load",
    "warming": "the warm-up to end",
    "draining": "nothing: it is shutting down",
    "stopped": "nothing: it is shut down",
    "failed": "nothing: the model could not be loaded",
}

STALLED_AFTER_S = 60.0
"""A worker that has not moved for this long, while it should, is taken for stuck."""


@dataclass(frozen=True, slots=True)
class EngineStatus:
    """How the engine is, at a glance."""

    state: State
    waits_for: str | None
    error: str | None
    queued: int
    running: int
    beat_age_s: float

    @property
    def healthy(self) -> bool:
        """Whether restarting the process would be of no use."""
        stalled = self.state == "ready" and self.beat_age_s > STALLED_AFTER_S
        return self.state != "failed" and not stalled
