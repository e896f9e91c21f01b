"""A sound decoder in a process of its own, on a CPU.

Level 0 and the finer levels are thousands of small operations a second. As two threads of one
interpreter they take turns with its lock at each of them: a step of level 0 then takes 1.6 times as
long (docs/results/5-engine.md). Two processes share no lock.

The process (`app.engine.sound.process.server`) loads the weights itself and computes the same bits.
It ends when its pipe does. If it was killed, it is started again, and what it was decoding is
decoded again from its beginning.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from typing import Any

import torch
from torch import Tensor

from app.engine.child import Child
from app.engine.errors import WorkerLost
from app.engine.job import Samples
from app.engine.sound.alignment import Decoded
from app.engine.sound.process.messages import Begin, Cancel, Decode, End, Next, Push
from app.engine.sound.process.start import start
from app.engine.utterance import UtteranceInput
from models.checkpoints import SpeechModel

log = logging.getLogger(__name__)


class SoundProcess:
    """Decodes utterances in another process; a `app.engine.sound.local.SoundDecoder`.

    One thread only.

    Attributes:
        generation: How many times it was started.
    """

    def __init__(
        self,
        load: Callable[[], SpeechModel],
        started: Child | None = None,
        *,
        at_once: bool = False,
    ) -> None:
        """Start the process.

        Args:
            load: Returns the model, called in the process; to be pickled.
            started: The process, if it was started before; None starts one.
            at_once: Whether it calls `load` now, and not in `ready`. False where something is to be
                downloaded, so that one of the two processes does it.
        """
        self._load, self._keys, self.generation = load, count(), 0
        self._start(started)
        if at_once:
            with suppress(WorkerLost):  # found out by `ready`
                self._send_load()

    def _start(self, started: Child | None = None) -> None:
        self.generation += 1
        self._child = started or start()
        self._loading = self._loaded = self._lost = False

    def _send_load(self) -> None:
        self.send(self._load)
        self._loading = True

    @property
    def pid(self) -> int | None:
        """Identifier of the process."""
        return self._child.process.pid

    def ready(self) -> None:
        """Wait until the process has loaded the model; start it again if it is gone.

        Raises:
            GenerationFailed: It could not load.
            WorkerLost: It is gone already.
        """
        if self._lost or (self._loaded and not self._child.process.is_alive()):
            self.close()
            self._start()
        if not self._loaded:
            if not self._loading:
                self._send_load()
            self.receive()
            self._loaded = True

    def restart(self, generation: int) -> None:
        """Start the process again, unless that was done since.

        Args:
            generation: Of the process that is gone.

        Raises:
            GenerationFailed: It could not load.
            WorkerLost: It is gone again.
        """
        if generation == self.generation:
            log.warning("the sound process is gone: it is started again, and its jobs continue")
            self._lost = True
            self.ready()

    def begin(self, inputs: UtteranceInput) -> "RemoteUtterance":
        """Begin an utterance; the process prefills its prefixes meanwhile."""
        return RemoteUtterance(self, inputs)

    def decode(self, codes: Tensor) -> Iterator[Samples]:
        """Yield the samples ``[N]`` of codes ``[T, K]`` int64, chunk by chunk; the same bits.

        Raises:
            GenerationFailed: The samples are not finite.
            WorkerLost: The process is gone for the second time.
        """
        yielded, restarted = 0, False
        while True:
            generation, key = self.generation, self.new_key()
            try:
                self.send(Decode(key, codes))
                for number in count():
                    if generation != self.generation:
                        raise WorkerLost("the sound process was started again")
                    if isinstance(samples := self.next(key), End):
                        return
                    if number >= yielded:
                        yielded += 1
                        yield samples
            except WorkerLost:
                if restarted:
                    raise
                restarted = True
                self.restart(generation)
            finally:
                with suppress(WorkerLost):
                    self.send(Cancel(key))

    def clear_cache(self) -> None:
        """Do nothing: what the process caches is bounded, and on no device."""

    def close(self) -> None:
        """End the process."""
        self._child.close()

    def new_key(self) -> int:
        """Return a key that nothing has in the process."""
        return next(self._keys)

    def next(self, key: int) -> Any:
        """Return the next samples ``[N]`` of a key, or `End`.

        Raises:
            WorkerLost: The process is gone.
        """
        self.send(Next(key))
        return self.receive()

    def send(self, message: object) -> None:
        """Send a message.

        Raises:
            WorkerLost: The process is gone.
        """
        try:
            self._child.send(message)
        except WorkerLost:
            self._lost = True  # the pipe ends before the operating system reports the process
            raise

    def receive(self) -> Any:
        """Return the next answer, or raise it if it is an exception.

        Raises:
            WorkerLost: The process is gone.
        """
        try:
            return self._child.receive()
        except WorkerLost:
            self._lost = True
            raise


class RemoteUtterance:
    """An utterance that the process decodes; a `app.engine.sound.local.UtteranceStream`.

    If the process is gone, it is started again and gets all frames once more; samples that were
    yielded before are left out, as the same codes give the same samples. This is done once: an
    utterance that ends the process twice may be the reason.

    Attributes:
        codes: ``[T, 1 + levels]`` int64, once it has ended.
        nar_s: Seconds spent on the finer levels, once it has ended.
        codec_s: Seconds spent on the codec, once it has ended.
    """

    def __init__(self, process: SoundProcess, inputs: UtteranceInput) -> None:
        """Begin; `SoundProcess.begin` calls this."""
        self._process, self._inputs = process, inputs
        self._pushed: list[tuple[Tensor, bool]] = []
        self._generation = self._key = 0  # of the process that has it
        self._sent = 0  # how many of the pushes that process has
        self._received = 0  # its answers to the last push that it has
        self._restarted = False
        with suppress(WorkerLost):  # found out again at the first push
            self._begin()
        self.codes = torch.zeros(0, 0, dtype=torch.int64)
        self.nar_s = self.codec_s = 0.0

    def push(self, codes: Tensor, *, ended: bool = False) -> Iterator[Decoded]:
        """Take the next final frames; see `app.engine.sound.utterance.UtteranceDecoder.push`.

        Raises:
            GenerationFailed: The samples are not finite, or the process could not be started again.
            WorkerLost: The process is gone for the second time.
        """
        self._pushed.append((codes, ended))
        yielded = 0
        while not isinstance(answer := self._answer(yielded), End):
            yield answer
            yielded += 1
        if answer.codes is not None:
            self.codes = answer.codes
            self.nar_s, self.codec_s = answer.nar_s, answer.codec_s

    def cancel(self) -> None:
        """Free it in the process, before its end."""
        if self._generation == self._process.generation:
            with suppress(WorkerLost):
                self._process.send(Cancel(self._key))

    def _begin(self) -> None:
        """Begin the utterance in the process that runs now.

        Raises:
            WorkerLost: None does.
        """
        generation, self._key = self._process.generation, self._process.new_key()
        self._process.send(Begin(self._key, self._inputs))
        self._generation, self._sent = generation, 0

    def _answer(self, yielded: int) -> Any:
        """Return the next answer to the last push.

        Args:
            yielded: How many of its answers were yielded.

        Raises:
            WorkerLost: The process is gone for the second time.
        """
        while True:
            try:
                if self._generation != self._process.generation:
                    self._begin()
                self._send_pushes()
                while self._received <= yielded:
                    answer = self._next()
                return answer
            except WorkerLost:
                if self._restarted:
                    raise
                self._restarted = True
                self._process.restart(self._process.generation)

    def _send_pushes(self) -> None:
        """Send the pushes that the process has not had; drop the answers to all but the last."""
        while self._sent < len(self._pushed):
            codes, ended = self._pushed[self._sent]
            self._process.send(Push(self._key, codes, ended))
            self._sent, self._received = self._sent + 1, 0
            if self._sent < len(self._pushed):
                while not isinstance(self._next(), End):
                    pass

    def _next(self) -> Any:
        answer = self._process.next(self._key)
        self._received += 1
        return answer
