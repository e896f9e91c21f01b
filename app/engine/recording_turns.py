"""The thread in which clients' recordings are dealt with: one at a time of all."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from app.engine.serving.fair_queue import OnPiece, TurnThread
from app.engine.serving.pacing import ClientPacer

_T = TypeVar("_T")


class RecordingTurns:
    """Deals with recordings, clients by turns. Event loop only."""

    def __init__(self) -> None:
        self._thread = TurnThread("speech-recordings")
        self._pacer = ClientPacer()

    @property
    def silent_s(self) -> float:
        """Seconds for which the present recording has been worked on; 0 if there is none."""
        return self._thread.silent_s

    async def result(self, job_id: str, client: str, run: Callable[[OnPiece], _T]) -> _T:
        """Have a client's recording dealt with when its turn has come, and return the result."""
        # After one that is refused or left its client's next waits; see `ClientPacer`.
        async with self._pacer.turn(client):
            return await asyncio.wrap_future(self._thread.result(job_id, client, 1, run))

    async def refuse(self) -> None:
        """Wait before a client is told that too much waits; see `ClientPacer.refuse`."""
        await self._pacer.refuse()

    def close(self) -> None:
        """Do no more; who waits for a result is told."""
        self._thread.close()
