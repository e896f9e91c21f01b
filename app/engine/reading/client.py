"""Texts read in a process of their own.

A regex or a call of espeak-ng on a long text keeps the interpreter's lock for up to 40 ms, and a
step of level 0 asks for that lock some times: as a thread beside it, whoever sends such texts would
slow all speech down by 30. Two processes share no lock (docs/results/9-every-machine.md).

The process (`app.engine.reading.server`) ends when its pipe does. If it was killed it is started
again, and what it was reading is read again from its beginning.
"""

import logging
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import Any, TypeVar

from app.engine.child import Child
from app.engine.errors import WorkerLost
from app.engine.reading.messages import Cancel, Next, Read, Words
from app.engine.reading.start import start
from models.config import ModelConfig
from models.text import Utterance
from models.text.words import WordSpan

T = TypeVar("T")

log = logging.getLogger(__name__)


class TextProcess:
    """Reads texts in another process, as `models.text.FrontEnd` does in this one.

    One thread at a time.

    Attributes:
        generation: How many times it was started.
    """

    def __init__(self, config: ModelConfig, started: Child | None = None) -> None:
        """Start the process.

        Args:
            config: Of the model whose texts it reads.
            started: The process, if it was started before; None starts one.
        """
        self._config, self._keys, self.generation = config, count(), 0
        self._start(started)

    def _start(self, started: Child | None = None) -> None:
        self.generation += 1
        self._child = started or start()
        with suppress(WorkerLost):  # found out by the next message
            self._child.send(self._config)

    @property
    def pid(self) -> int | None:
        """Identifier of the process."""
        return self._child.process.pid

    def prepare(
        self,
        text: str,
        *,
        language: str,
        max_chars: int,
        on_piece: Callable[[], None] = lambda: None,
    ) -> list[Utterance]:
        """Return the utterances of a text, in order; see `FrontEnd.prepare`.

        Args:
            text: The text.
            language: Its language.
            max_chars: The longest text accepted.
            on_piece: Called after each piece; it may have other texts read.

        Raises:
            TextError: The text cannot be spoken.
            WorkerLost: The process is gone for the second time.
        """

        def read() -> list[Utterance]:
            key, generation = next(self._keys), self.generation
            utterances: list[Utterance] | None
            utterances = self._ask(Read(key, text, language, max_chars))
            while utterances is None:
                try:
                    on_piece()
                except BaseException:
                    with suppress(WorkerLost):
                        self._child.send(Cancel(key))
                    raise
                if generation != self.generation:
                    raise WorkerLost("the text process was started again")
                utterances = self._ask(Next(key))
            return utterances

        return self._again_if_lost(read)

    def words(self, utterance: Utterance, *, language: str) -> tuple[WordSpan, ...]:
        """Return the words of an utterance with their phonemes; see `FrontEnd.words`.

        Raises:
            TextError: The language is not supported.
            WorkerLost: The process is gone for the second time.
        """

        def read() -> tuple[WordSpan, ...]:
            spans: tuple[WordSpan, ...] = self._ask(Words(utterance, language))
            return spans

        return self._again_if_lost(read)

    def close(self) -> None:
        """End the process."""
        self._child.close()

    def _ask(self, message: object) -> Any:
        """Send a message and return its answer, or raise that.

        Raises:
            WorkerLost: The process is gone.
        """
        self._child.send(message)
        return self._child.receive()

    def _again_if_lost(self, work: Callable[[], T]) -> T:
        """Return what work returns; if the process is gone, start it again and try once more.

        Raises:
            WorkerLost: It is gone for the second time: the text may be the reason.
        """
        generation = self.generation
        try:
            return work()
        except WorkerLost:
            self._restart(generation)
        generation = self.generation
        try:
            return work()
        except WorkerLost:
            self._restart(generation)  # for the texts that follow
            raise

    def _restart(self, generation: int) -> None:
        """Start the process again, unless that was done since."""
        if generation == self.generation:
            log.warning("the text process is gone: it is started again")
            self._child.close()
            self._start()
