"""Restarts workers that crashed, unless they crash again and again."""

import logging
import threading
from collections import deque
from collections.abc import Callable
from time import monotonic

from app.engine.errors import GenerationFailed, SpeechError
from app.engine.serving.metrics import EngineMetrics
from gpu.lost import is_device_lost

log = logging.getLogger(__name__)

MAX_RESTARTS = 5
WITHIN_S = 60.0


class Supervisor:
    """Runs each worker in its thread until it returns; a crashed worker is run again."""

    def __init__(self, metrics: EngineMetrics, on_give_up: Callable[[str], None]) -> None:
        self._metrics = metrics
        self._on_give_up = on_give_up
        self._restarts: deque[float] = deque(maxlen=MAX_RESTARTS)
        self._restarting = threading.Lock()

    def run(
        self, name: str, work: Callable[[], None], fail_jobs: Callable[[SpeechError], None]
    ) -> None:
        """Call ``work`` until it returns normally, which it does when there is no more to do.

        ``fail_jobs`` ends the running jobs with an error; those that wait stay.
        """
        while True:
            try:
                work()
            # Every exception, even one that ends threads: readers wait for the jobs.
            except BaseException as error:
                log.critical("the %s worker crashed and is started again", name, exc_info=error)
                fail_jobs(GenerationFailed("a worker of the engine crashed; try again"))
                lost = is_device_lost(error)
                if lost or not self._may_restart():
                    how = "has lost its device" if lost else "crashes again and again"
                    why = f"the {name} worker {how}: {error!r}"
                    log.critical("%s", why)
                    self._on_give_up(why)
                    return
            else:
                return

    def _may_restart(self) -> bool:
        with self._restarting:
            self._metrics.restarts.inc()
            now_s = monotonic()
            often = len(self._restarts) == MAX_RESTARTS and now_s - self._restarts[0] < WITHIN_S
            self._restarts.append(now_s)
            return not often
