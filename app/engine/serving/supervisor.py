"""Workers that broke are started again, unless they break again and again."""

import logging
import threading
from collections import deque
from collections.abc import Callable
from time import monotonic

from app.engine.errors import GenerationFailed, SpeechError
from app.engine.serving.metrics import EngineMetrics

log = logging.getLogger(__name__)

MAX_RESTARTS, WITHIN_S = 5, 60.0


class Supervisor:
    """Runs workers in their threads until they end by themselves."""

    def __init__(self, metrics: EngineMetrics, on_hopeless: Callable[[str], None]) -> None:
        """Begin with no worker.

        Args:
            metrics: Told of every restart.
            on_hopeless: Called with the reason where restarts do not help.
        """
        self._metrics, self._on_hopeless = metrics, on_hopeless
        self._restarts: deque[float] = deque(maxlen=MAX_RESTARTS)
        self._restarting = threading.Lock()

    def run(self, name: str, work: Callable[[], None], lose: Callable[[SpeechError], None]) -> None:
        """Do some work to its end, anew whenever it breaks.

        Args:
            name: Of the worker, for the log.
            work: Returns when there is no more to do.
            lose: Ends the jobs that were being worked at, with an error; those that wait stay.
        """
        while True:
            try:
                work()
            # Whatever it is, even one that ends threads: somebody waits for the jobs.
            except BaseException as error:
                log.critical("the %s worker broke, and starts again", name, exc_info=error)
                lose(GenerationFailed("the engine broke amid the speech; try again"))
                if not self._may_restart():
                    why = f"the {name} worker breaks again and again: {error!r}"
                    log.critical("%s", why)
                    self._on_hopeless(why)
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
