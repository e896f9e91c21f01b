"""Texts read in a process of their own.

A regex or a call of espeak-ng on a long text keeps the interpreter's lock for up to 40 ms, and a
step of level 0 asks for that lock some times: as a thread of the same process, such a text would
slow all speech down by 30. Two processes share no lock (docs/results/machines.md).
"""

from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from time import perf_counter
from typing import Any, Final

from app.engine.child_process import ChildProcess, Table, text_worker
from app.engine.errors import EndedWorker
from models.config import ModelConfig
from models.text import FrontEnd, Prepared, TextError, Utterance
from models.text.words import WordSpan

_PIECE_S: Final = 0.004
"""Of a text that grows, for how long at least is read before another text may be."""


def table(config: ModelConfig) -> Table:
    """Return the functions of the text process, for the texts of a model."""
    front_end = FrontEnd(config)

    def words(utterance: Utterance, language: str) -> Iterator[tuple[WordSpan, ...]]:
        yield front_end.words(utterance, language=language)

    def prepared(text: str, **how: Any) -> Iterator[Prepared | None]:
        began_s = perf_counter()
        for read in front_end.prepared(text, **how):
            # Each answer costs both processes a turn, and of a text that grows each word is read.
            if read is not None or not how.get("is_open") or perf_counter() - began_s > _PIECE_S:
                yield read
                began_s = perf_counter()

    return {"prepared": prepared, "words": words}


class TextProcess:
    """Reads texts in another process, as `models.text.FrontEnd` does in this one.

    One thread at a time; texts may be read between two pieces of another.
    """

    def __init__(self, config: ModelConfig, worker: ChildProcess | None = None) -> None:
        self.worker = worker or text_worker()
        self.worker.load(config)

    def prepared(self, text: str, **how: Any) -> Generator[Prepared | None]:
        """Prepare a text, a piece at each step; see `FrontEnd.prepared`."""
        with _refused(), closing(self.worker.iterate("prepared", text, **how)) as pieces:
            yield from pieces

    def words(self, utterance: Utterance, *, language: str) -> tuple[WordSpan, ...]:
        """Return the words of an utterance with their phonemes; see `FrontEnd.words`."""
        with _refused(), closing(self.worker.iterate("words", utterance, language)) as found:
            return tuple[WordSpan, ...](next(found))

    def close(self) -> None:
        """End the process."""
        self.worker.close()


@contextmanager
def _refused() -> Iterator[None]:
    try:
        yield
    except EndedWorker as error:
        raise TextError("this text ends the process that reads it, so it is not read") from error
