"""A sound decoder in a process of its own, on a CPU.

Level 0 and the NAR levels are thousands of small operations a second. As two threads of one
interpreter they take turns with its lock at each of them: a step of level 0 then takes 1.6 times as
long (docs/results/engine.md). Two processes share no lock. The process loads the weights itself
and computes the same bits.
"""

from collections.abc import Callable, Sequence
from typing import Any

from app.engine.child_process import ChildProcess, RemoteIterator, Table
from app.engine.errors import GenerationFailed
from app.engine.nar.stage import NarStage
from app.engine.utterance import UtteranceSpec
from models.checkpoints.sources import SpeechModel


def table(load: Callable[[], SpeechModel]) -> Table:
    """Return the functions of the sound process; raises GenerationFailed if loading fails."""
    try:
        decoder = NarStage(load())
    except Exception as error:
        message = f"the sound process could not load the model: {error}"
        raise GenerationFailed(message) from error
    return {"utterance": decoder.begin}


class AudioProcess:
    """Decodes utterances in another process: a client of its `NarStage`. One thread only."""

    chunks_at_once = 1  # each is made by itself

    def __init__(self, worker: ChildProcess) -> None:
        self.worker = worker

    def ready(self) -> None:
        """Wait until the process has loaded the model; start it again if it is gone."""
        self.worker.ready()

    def begin(self, inputs: UtteranceSpec, kept_levels: int | None = None) -> RemoteIterator:
        """Begin an utterance, a `UtteranceDecoder` in the process, which prefills it meanwhile."""
        return self.worker.iterate("utterance", inputs, kept_levels)

    def make_together(self, utterances: Sequence[Any]) -> tuple[()]:  # noqa: ARG002
        """Make none."""
        return ()

    def clear_cache(self) -> None:
        """Do nothing: what the process caches is bounded, and on no device."""

    def close(self) -> None:
        """End the process."""
        self.worker.close()
