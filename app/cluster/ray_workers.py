"""Workers of a batch on a cluster of Ray: an actor a worker, with a GPU if asked for.

Ray restarts a worker that died; the lines that it had are given out again.
"""

import logging
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from typing import Any, Final

import ray
from ray.exceptions import ActorUnavailableError, RayActorError, RayTaskError

from app.cluster.batch import Line, Speaker, Spoken

log = logging.getLogger(__name__)

_WAIT_S: Final = 0.5
_DEATHS: Final = 3
"""Workers that a line may outlive: after that it is taken for what kills them."""


class RayWorkers:
    """Workers on a cluster."""

    def __init__(
        self,
        number: int,
        *,
        gpus: float = 0.0,
        cpus: float = 1.0,
        engine: str = "",
        at_once: int = 8,
        environment: dict[str, str] | None = None,
    ) -> None:
        kind: Any = ray.remote(
            max_restarts=-1,
            max_concurrency=at_once + 1,
            num_gpus=gpus,
            num_cpus=cpus,
            runtime_env={"env_vars": environment or {}},
        )(Speaker)
        self._workers = [kind.remote(engine) for _ in range(number)]
        self._at_once = at_once

    def run(self, lines: Sequence[Line]) -> Iterator[tuple[Line, Spoken]]:
        """Yield each line with its answer.

        Raises:
            RayTaskError: A worker is faulty, not dead.
            RuntimeError: A line ended several workers.
        """
        waiting = deque(lines)
        working: dict[Any, tuple[int, Line]] = {}
        deaths: Counter[int] = Counter()
        while waiting or working:
            busy = Counter(worker for worker, _ in working.values())
            for place, worker in enumerate(self._workers):
                while waiting and busy[place] < self._at_once:
                    line = waiting.popleft()
                    working[worker.speak.remote(line)] = (place, line)
                    busy[place] += 1
            done, _ = ray.wait(list(working), timeout=_WAIT_S)
            for one in done:
                place, line = working.pop(one)
                try:
                    yield line, ray.get(one)
                except RayTaskError:
                    raise
                except (RayActorError, ActorUnavailableError) as error:
                    log.warning("worker %d died (%s)", place, type(error).__name__)
                    deaths[line.number] += 1
                    if deaths[line.number] > _DEATHS * self._at_once:
                        raise RuntimeError(f"line {line.number} ends its workers") from error
                    waiting.appendleft(line)
        for worker in self._workers:
            ray.kill(worker)
