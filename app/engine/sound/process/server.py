"""What runs in the sound process: answers the messages of `app.engine.sound.process.client`."""

import pickle
import signal
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection

from app.engine.errors import GenerationFailed
from app.engine.job import Samples
from app.engine.sound.alignment import Decoded
from app.engine.sound.local import LocalSoundDecoder, UtteranceStream
from app.engine.sound.process.messages import Begin, Cancel, Decode, End, Next, Push
from models.checkpoints import SpeechModel


class SoundServer:
    """Decodes utterances in the sound process, each chunk when its samples are asked for."""

    def __init__(self, speech: SpeechModel) -> None:
        """Use a loaded model."""
        self._decoder = LocalSoundDecoder(speech)
        self._utterances: dict[int, UtteranceStream | Exception] = {}
        self._samples: dict[int, Iterator[Samples | Decoded]] = {}
        self._ended: set[int] = set()

    def handle(self, message: object) -> object | None:
        """Act on a message; return its answer, or None if it has none."""
        match message:
            case Begin(key, inputs):
                try:
                    self._utterances[key] = self._decoder.begin(inputs)
                except Exception as error:  # raised by the first `Next`, which has an answer
                    self._utterances[key] = error
            case Push(key, codes, ended):
                utterance = self._utterances[key]
                if not isinstance(utterance, Exception):
                    self._samples[key] = utterance.push(codes, ended=ended)
                    if ended:
                        self._ended.add(key)
            case Decode(key, codes):
                self._samples[key] = self._decoder.decode(codes)
            case Next(key):
                return self._next(key)
            case Cancel(key):
                self._free(key)
        return None

    def _next(self, key: int) -> object:
        """Return the next samples of a key, `End`, or the exception that it ended with."""
        utterance = self._utterances.get(key)
        try:
            if isinstance(utterance, Exception):
                raise utterance
            samples = next(self._samples[key], None)
        except Exception as error:
            self._free(key)
            return error
        if samples is not None:
            return samples
        if key not in self._ended or utterance is None:
            return End()
        self._free(key)
        return End(utterance.codes.cpu(), utterance.nar_s, utterance.codec_s)

    def _free(self, key: int) -> None:
        self._utterances.pop(key, None)
        self._samples.pop(key, None)
        self._ended.discard(key)


def serve(pipe: Connection) -> None:
    """Answer messages until the pipe ends; the first message is a function that loads the model."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C is for the parent, which ends the pipe
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    server: SoundServer | None = None
    try:
        while True:
            message = pickle.loads(pipe.recv_bytes())
            if server is not None:
                answer = server.handle(message)
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
