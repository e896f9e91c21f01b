"""How an engine runs: one object, made once."""

from dataclasses import dataclass
from typing import Final

DEFAULT_SLOTS: Final = 20


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """How an engine runs."""

    max_queue: int
    request_timeout_s: float  # after which a job fails
    stall_timeout_s: float = 30.0  # in which a reader that takes no audio must come back
    # Rows of the batch that draws level 0; a job states how many it takes.
    slots: int = DEFAULT_SLOTS
    # Seconds without a job after which the model leaves its device; 0: never.
    unload_after_s: float = 0.0
    check_golden: bool = False
