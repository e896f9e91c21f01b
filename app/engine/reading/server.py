"""What runs in the text process: answers the messages of `app.engine.reading.client`."""

import pickle
import signal
import traceback
from collections.abc import Iterator
from multiprocessing.connection import Connection

from app.engine.reading.messages import Cancel, Next, Read, Words
from models.config import ModelConfig
from models.text import FrontEnd, Utterance
from models.text.words import WordSpan


class TextServer:
    """Reads texts in the text process, each piece when it is asked for."""

    def __init__(self, config: ModelConfig) -> None:
        """Read as a model was trained."""
        self._front_end = FrontEnd(config)
        self._texts: dict[int, Iterator[list[Utterance] | None]] = {}

    def handle(self, message: object) -> list[Utterance] | tuple[WordSpan, ...] | None:
        """Act on a message and return its answer.

        Raises:
            TextError: The text cannot be spoken.
        """
        match message:
            case Read(key, text, language, max_chars):
                self._texts[key] = self._front_end.prepared(
                    text, language=language, max_chars=max_chars
                )
                return self._next(key)
            case Next(key):
                return self._next(key)
            case Words(utterance, language):
                return self._front_end.words(utterance, language=language)
            case Cancel(key):
                self._texts.pop(key, None)
        return None

    def _next(self, key: int) -> list[Utterance] | None:
        """Return the utterances of a key's text; None if more of it is left.

        Raises:
            TextError: It cannot be spoken.
        """
        try:
            read = next(self._texts[key])
        except Exception:
            del self._texts[key]
            raise
        if read is not None:
            del self._texts[key]
        return read


def serve(pipe: Connection) -> None:
    """Answer messages until the pipe ends; the first is the configuration of the model."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C is for the parent, which ends the pipe
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        server = TextServer(pickle.loads(pipe.recv_bytes()))
        while True:
            message = pickle.loads(pipe.recv_bytes())
            answer: object
            try:
                answer = server.handle(message)
            except Exception as error:
                # The traceback does not travel with an exception, its notes do.
                error.add_note("".join(traceback.format_tb(error.__traceback__)))
                answer = error
            if not isinstance(message, Cancel):
                pipe.send_bytes(pickle.dumps(answer))
    except (EOFError, BrokenPipeError):
        return
