"""What runs in the voice process: keeps utterances, and makes their next chunk when asked."""

import pickle
import signal
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection

from app.engine.errors import GenerationFailed
from app.engine.job import Samples
from app.engine.sound.local import LocalVoice
from app.engine.sound.process.messages import Begin, Decode, Drop, End, Next, Push
from app.engine.sound.utterance import Voicing
from app.engine.utterance import UtteranceInput
from models.checkpoints import SpeechModel


class VoiceServer:
    """What the process does: keeps utterances, and makes their next chunk when asked."""

    def __init__(self, speech: SpeechModel) -> None:
        self._voice = LocalVoice(speech)
        self._voicings: dict[int, Voicing | BaseException] = {}
        self._sounds: dict[int, Iterator[Samples]] = {}
        self._ended: set[int] = set()

    def take(self, message: object) -> object | None:
        """Act on a message; return its answer if it has one."""
        match message:
            case Begin(key, piece):
                self._voicings[key] = self._begin(piece)
            case Push(key, codes, ended):
                voicing = self._voicings[key]
                if isinstance(voicing, Voicing):
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

    def _begin(self, piece: UtteranceInput) -> Voicing | BaseException:
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
    server: VoiceServer | None = None
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


def _loaded(load: Callable[[], SpeechModel]) -> tuple[VoiceServer | None, object]:
    try:
        return VoiceServer(load()), True
    except Exception as error:
        return None, GenerationFailed(f"the voice process could not load the model: {error}")
