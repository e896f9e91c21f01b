"""Sound made in a process of its own, on a CPU.

Level 0 and the finer levels are thousands of small operations a second. As two threads of one
interpreter they take turns with its lock at each of them: a step of level 0 then takes 1.6 times as
long (docs/results/5-engine.md). Two processes do not know of each other.

The process has weights of its own, so that both compute the same bits. It ends when its pipe does.
"""

import atexit
import multiprocessing
import pickle
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

import torch
from torch import Tensor

from app.engine.errors import GenerationFailed, WorkerLost
from app.engine.job import Samples
from app.engine.piece import Piece
from app.engine.voice import LocalVoice
from app.engine.voicing import Voicing
from models.checkpoints import SpeechModel


class _Begin(NamedTuple):
    key: int
    piece: Piece


class _Push(NamedTuple):
    key: int
    codes: Tensor
    ended: bool


class _Decode(NamedTuple):
    key: int
    codes: Tensor


class _Next(NamedTuple):
    key: int


class _Drop(NamedTuple):
    key: int


class _End(NamedTuple):
    """All that was pushed is sound; the rest is there if nothing may follow."""

    codes: Tensor | None = None
    nar_s: float = 0.0
    codec_s: float = 0.0


class VoiceProcess:
    """Makes sound in another process; a `app.engine.voice.Voice`. One thread only."""

    def __init__(self, load: Callable[[], SpeechModel]) -> None:
        """Start the process, which makes itself ready and waits for `load`.

        Args:
            load: Gives the model, in the process; to be pickled.
        """
        self._load, self._keys = load, count()
        self._start()

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(
            target=_serve, args=(theirs,), name="speech-voice", daemon=True
        )
        self._process.start()
        theirs.close()  # so that the pipe ends with the process
        # It is deaf to SIGTERM, which may be for all of a service while it still drains; who ends
        # without `close` would wait for it for ever.
        atexit.register(self._process.kill)
        self._loaded = self._lost = False

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
            self.ask(self._load)
            self._loaded = True

    def begin(self, piece: Piece) -> "RemoteVoicing":
        """Begin an utterance: the process reads its prefixes meanwhile."""
        key = next(self._keys)
        self.send(_Begin(key, piece))
        return RemoteVoicing(self, key)

    def decode(self, codes: Tensor) -> Iterator[Samples]:
        """Yield the samples of codes ``[T, K]`` int64, a chunk at a time; the same bits.

        Raises:
            GenerationFailed: The samples are no numbers.
        """
        key = next(self._keys)
        self.send(_Decode(key, codes))
        try:
            while not isinstance(sound := self.ask(_Next(key)), _End):
                yield sound
        finally:
            with suppress(WorkerLost):
                self.send(_Drop(key))

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
        return WorkerLost("the voice process is gone")

    def ask(self, message: object) -> Any:
        """Return the answer to something, or raise it.

        Raises:
            WorkerLost: The process is gone.
        """
        self.send(message)
        answer = self.receive()
        if isinstance(answer, BaseException):
            raise answer
        return answer


class RemoteVoicing:
    """An utterance that the process makes sound of; a `app.engine.voice.Voiced`.

    Attributes:
        codes: ``[T, 1 + levels]`` int64, once it has ended.
        nar_s: Seconds spent on the finer levels, once it has ended.
        codec_s: Seconds spent on the codec, once it has ended.
    """

    def __init__(self, process: VoiceProcess, key: int) -> None:
        """Begin; `VoiceProcess.begin` does."""
        self._process, self._key = process, key
        self.codes = torch.zeros(0, 0, dtype=torch.int64)
        self.nar_s = self.codec_s = 0.0

    def push(self, codes: Tensor, *, ended: bool = False) -> Iterator[Samples]:
        """Take the next final frames; see `app.engine.voicing.Voicing.push`.

        Raises:
            GenerationFailed: The samples are no numbers.
            WorkerLost: The process is gone.
        """
        self._process.send(_Push(self._key, codes, ended))
        while not isinstance(answer := self._process.ask(_Next(self._key)), _End):
            yield answer
        if answer.codes is not None:
            self.codes = answer.codes
            self.nar_s, self.codec_s = answer.nar_s, answer.codec_s

    def drop(self) -> None:
        """Forget it before its end."""
        with suppress(WorkerLost):
            self._process.send(_Drop(self._key))


class _Server:
    """What the process does: keeps utterances, and makes their next chunk when asked."""

    def __init__(self, speech: SpeechModel) -> None:
        self._voice = LocalVoice(speech)
        self._voicings: dict[int, Voicing | BaseException] = {}
        self._sounds: dict[int, Iterator[Samples]] = {}
        self._ended: set[int] = set()

    def take(self, message: object) -> object | None:
        """Act on a message; return its answer if it has one."""
        match message:
            case _Begin(key, piece):
                self._voicings[key] = self._begin(piece)
            case _Push(key, codes, ended):
                voicing = self._voicings[key]
                if isinstance(voicing, Voicing):
                    self._sounds[key] = voicing.push(codes, ended=ended)
                    if ended:
                        self._ended.add(key)
            case _Decode(key, codes):
                self._sounds[key] = self._voice.decode(codes)
            case _Next(key):
                return self._next(key)
            case _Drop(key):
                self._forget(key)
        return None

    def _begin(self, piece: Piece) -> Voicing | BaseException:
        try:
            return self._voice.begin(piece)
        except Exception as error:  # told when it is asked for
            return error

    def _next(self, key: int) -> object:
        voicing = self._voicings.get(key)
        try:
            if isinstance(voicing, BaseException):
                raise voicing
            sound = next(self._sounds[key], None)
        except Exception as error:
            self._forget(key)
            return error
        if sound is not None:
            return sound
        if key not in self._ended or voicing is None:
            return _End()
        self._forget(key)
        return _End(voicing.codes.cpu(), voicing.nar_s, voicing.codec_s)

    def _forget(self, key: int) -> None:
        self._voicings.pop(key, None)
        self._sounds.pop(key, None)
        self._ended.discard(key)


def _serve(pipe: Connection) -> None:
    """Run in the process until the pipe ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C is for the parent, which ends the pipe
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    server: _Server | None = None
    try:
        while True:
            message = pickle.loads(pipe.recv_bytes())
            if server is not None:
                answer = server.take(message)
            else:
                server, answer = _loaded(message)
            if answer is not None:
                pipe.send_bytes(pickle.dumps(answer))
    except (EOFError, BrokenPipeError):
        return


def _loaded(load: Callable[[], SpeechModel]) -> tuple[_Server | None, object]:
    try:
        return _Server(load()), True
    except Exception as error:
        return None, GenerationFailed(f"the voice process could not load the model: {error}")
