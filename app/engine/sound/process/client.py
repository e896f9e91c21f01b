"""Sound made in a process of its own, on a CPU.

Level 0 and the finer levels are thousands of small operations a second. As two threads of one
interpreter they take turns with its lock at each of them: a step of level 0 then takes 1.6 times as
long (docs/results/5-engine.md). Two processes do not know of each other.

The process (`app.engine.sound.process.server`) has weights of its own, so that both compute the
same bits. It ends when its pipe does. One that was killed is started again, and nobody hears of it.
"""

import atexit
import logging
import pickle
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from typing import Any

import torch
from torch import Tensor

from app.engine.errors import WorkerLost
from app.engine.job import Samples
from app.engine.sound.process.messages import Begin, Decode, Drop, End, Next, Push
from app.engine.sound.process.start import SoundStart, start
from app.engine.utterance import UtteranceInput
from models.checkpoints import SpeechModel

log = logging.getLogger(__name__)


class SoundProcess:
    """Makes sound in another process; a `app.engine.sound.local.SoundDecoder`. One thread only.

    Attributes:
        generation: How often it was started.
    """

    def __init__(
        self,
        load: Callable[[], SpeechModel],
        started: SoundStart | None = None,
        *,
        at_once: bool = False,
    ) -> None:
        """Start the process, which makes itself ready and waits for `load`.

        Args:
            load: Gives the model, in the process; to be pickled.
            started: The process, if it was started before; None starts one.
            at_once: Whether it loads now already, and not when `ready` is called: nothing is to be
                downloaded, which one of the two should do.
        """
        self._load, self._keys, self.generation = load, count(), 0
        self._start(started)
        if at_once:
            with suppress(WorkerLost):  # found out by `ready`
                self.send(load)
                self._asked = True

    def _start(self, started: SoundStart | None = None) -> None:
        self.generation += 1
        self._process, self._pipe = started or start()
        self._asked = self._loaded = self._lost = False

    @property
    def pid(self) -> int | None:
        """Of the process."""
        return self._process.pid

    def ready(self) -> None:
        """Wait until the process has loaded the model; start it anew if it is gone.

        Raises:
            GenerationFailed: It could not load.
            WorkerLost: It is gone already.
        """
        if self._lost or (self._loaded and not self._process.is_alive()):
            self.close()
            self._start()
        if not self._loaded:
            if not self._asked:
                self.send(self._load)
            self._asked = True
            self._answer()
            self._loaded = True

    def begin(self, inputs: UtteranceInput) -> "RemoteUtterance":
        """Begin an utterance: the process reads its prefixes meanwhile."""
        return RemoteUtterance(self, inputs)

    def new_key(self) -> int:
        """Return what nothing was called yet."""
        return next(self._keys)

    def revive(self, generation: int) -> None:
        """Start the process anew, unless somebody has done so since.

        Args:
            generation: The one that is gone.

        Raises:
            GenerationFailed: It could not load.
            WorkerLost: It is gone again.
        """
        if generation == self.generation:
            log.warning("the sound process is gone: it is started again, and speeches go on")
            self._lost = True
            self.ready()

    def decode(self, codes: Tensor) -> Iterator[Samples]:
        """Yield the samples of codes ``[T, K]`` int64, a chunk at a time; the same bits.

        Raises:
            GenerationFailed: The samples are no numbers.
            WorkerLost: The process is gone for the second time.
        """
        given, revived = 0, False
        while True:
            generation, key = self.generation, self.new_key()
            try:
                self.send(Decode(key, codes))
                for sound in self._sounds(key, generation, given):
                    given += 1
                    yield sound
            except WorkerLost:
                if revived:
                    raise
                revived = True
                self.revive(generation)
            else:
                return
            finally:
                with suppress(WorkerLost):
                    self.send(Drop(key))

    def _sounds(self, key: int, generation: int, given: int) -> Iterator[Samples]:
        """Yield what the process makes under a key, but for what was given before.

        Raises:
            WorkerLost: It is not the process any more that was asked.
        """
        for number in count():
            if generation != self.generation:
                raise WorkerLost("the sound process is another one")
            if isinstance(sound := self.ask(Next(key)), End):
                return
            if number >= given:
                yield sound

    def rest(self) -> None:
        """Do nothing: what it keeps is bounded, and on no device."""

    def close(self) -> None:
        """End the process."""
        atexit.unregister(self._process.kill)
        self._pipe.close()
        self._process.kill()  # it keeps nothing that is worth waiting for
        self._process.join()

    def send(self, message: object) -> None:
        """Send something that has no answer, or whose answer is to be received.

        Raises:
            WorkerLost: The process is gone.
        """
        # Plain pickle: torch's own would share each small tensor through a file descriptor.
        message_bytes = pickle.dumps(message)
        try:
            self._pipe.send_bytes(message_bytes)
        except OSError as error:
            raise self._gone() from error

    def receive(self) -> Any:
        """Return the next answer.

        Raises:
            WorkerLost: The process is gone.
        """
        try:
            return pickle.loads(self._pipe.recv_bytes())
        except (EOFError, OSError) as error:
            raise self._gone() from error

    def _gone(self) -> WorkerLost:
        # The pipe ends before the system tells that the process has.
        self._lost = True
        return WorkerLost("the sound process is gone")

    def ask(self, message: object) -> Any:
        """Return the answer to something, or raise it.

        Raises:
            WorkerLost: The process is gone.
        """
        self.send(message)
        return self._answer()

    def _answer(self) -> Any:
        answer = self.receive()
        if isinstance(answer, BaseException):
            raise answer
        return answer


class RemoteUtterance:
    """An utterance that the process makes sound of; a `app.engine.sound.local.UtteranceStream`.

    Where the process is gone, it is started again and told all once more, and what it makes is
    dropped as far as it was given already: the same codes make the same samples. That helps once;
    an utterance that ends a process twice may be the reason.

    Attributes:
        codes: ``[T, 1 + levels]`` int64, once it has ended.
        nar_s: Seconds spent on the finer levels, once it has ended.
        codec_s: Seconds spent on the codec, once it has ended.
    """

    def __init__(self, process: SoundProcess, inputs: UtteranceInput) -> None:
        """Begin; `SoundProcess.begin` does."""
        self._process, self._inputs = process, inputs
        self._pushed: list[tuple[Tensor, bool]] = []
        self._generation = self._key = self._told = self._received = 0
        self._revived = False
        with suppress(WorkerLost):  # found out again at the first push
            self._begin()
        self.codes = torch.zeros(0, 0, dtype=torch.int64)
        self.nar_s = self.codec_s = 0.0

    def push(self, codes: Tensor, *, ended: bool = False) -> Iterator[Samples]:
        """Take the next final frames; see `app.engine.sound.utterance.UtteranceDecoder.push`.

        Raises:
            GenerationFailed: The samples are no numbers, or the process could not be started again.
            WorkerLost: The process is gone for the second time.
        """
        self._pushed.append((codes, ended))
        given = 0
        while not isinstance(answer := self._answer(given), End):
            yield answer
            given += 1
        if answer.codes is not None:
            self.codes = answer.codes
            self.nar_s, self.codec_s = answer.nar_s, answer.codec_s

    def drop(self) -> None:
        """Forget it before its end."""
        if self._generation == self._process.generation:
            with suppress(WorkerLost):
                self._process.send(Drop(self._key))

    def _begin(self) -> None:
        """Tell the process that is there of the piece.

        Raises:
            WorkerLost: There is none.
        """
        generation, self._key = self._process.generation, self._process.new_key()
        self._process.send(Begin(self._key, self._inputs))
        self._generation, self._told = generation, 0

    def _answer(self, given: int) -> Any:
        """Return the next answer to the last push, of which so many were given.

        Raises:
            WorkerLost: The process is gone for the second time.
        """
        while True:
            try:
                if self._generation != self._process.generation:
                    self._begin()
                self._tell()
                while self._received <= given:
                    answer = self._next()
                return answer
            except WorkerLost:
                if self._revived:
                    raise
                self._revived = True
                self._process.revive(self._process.generation)

    def _tell(self) -> None:
        """Push what this process has not had; the sound of all but the last was given before."""
        while self._told < len(self._pushed):
            codes, ended = self._pushed[self._told]
            self._process.send(Push(self._key, codes, ended))
            self._told, self._received = self._told + 1, 0
            if self._told < len(self._pushed):
                while not isinstance(self._next(), End):
                    pass

    def _next(self) -> Any:
        answer = self._process.ask(Next(self._key))
        self._received += 1
        return answer
