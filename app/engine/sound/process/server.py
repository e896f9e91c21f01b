"""What runs in the sound process: keeps utterances, and makes their next chunk when asked."""

import pickle
import signal
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection

from app.engine.errors import GenerationFailed
from app.engine.job import Samples
from app.engine.sound.local import LocalSoundDecoder
from app.engine.sound.process.messages import Begin, Decode, Drop, End, Next, Push
from app.engine.sound.utterance import UtteranceDecoder
from app.engine.utterance import UtteranceInput
from models.checkpoints import SpeechModel


class SoundServer:
    """What the process does: keeps utterances, and makes their next chunk when asked."""

    def __init__(self, speech: SpeechModel) -> None:
        self._voice = LocalSoundDecoder(speech)
        self._voicings: dict[int, UtteranceDecoder | BaseException] = {}
        self._sounds: dict[int, Iterator[Samples]] = {}
        self._ended: set[int] = set()

    def take(self, message: object) -> object | None:
        """Act on a message; return its answer if it has one."""
        match message:
            case Begin(key, inputs):
                self._voicings[key] = self._begin(inputs)
            case Push(key, codes, ended):
                voicing = self._voicings[key]
                if isinstance(voicing, UtteranceDecoder):
                    self._sounds[key] = voicing.push(codes, ended=ended)
                    if ended:
                        self._ended.add(key)
            case Decode(key, codes):
                self._sounds[key] = self._voice.decode(codes)
            case Next(key):
                return self._next(key)
            case Drop(key):
                self._forget(key)
        return None

    def _begin(self, inputs: UtteranceInput) -> UtteranceDecoder | BaseException:
        try:
            return self._voice.begin(inputs)
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
            return End()
        self._forget(key)
        return End(voicing.codes.cpu(), voicing.nar_s, voicing.codec_s)

    def _forget(self, key: int) -> None:
        self._voicings.pop(key, None)
        self._sounds.pop(key, None)
        self._ended.discard(key)


def serve(pipe: Connection) -> None:
    """Run in the process until the pipe ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C is for the parent, which ends the pipe
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    server: SoundServer | None = None
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


def _loaded(load: Callable[[], SpeechModel]) -> tuple[SoundServer | None, object]:
    try:
        return SoundServer(load()), True
    except Exception as error:
        return None, GenerationFailed(f"the sound process could not load the model: {error}")
