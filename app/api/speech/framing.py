"""How a speech becomes the body of a response: its file as it is, or another shape around it."""

from app.engine.errors import SpeechError
from app.engine.job import AudioChunk, SpeechResult


class Framing:
    """The file as it is; the base of other shapes. One object serves one response.

    Attributes:
        media_type: Of the response.
    """

    def __init__(self, media_type: str) -> None:
        self.media_type = media_type

    def before(self, chunk: AudioChunk) -> bytes:  # noqa: ARG002
        """Return what is sent before the sound of a chunk."""
        return b""

    def sound(self, part: bytes) -> bytes:
        """Return the next bytes of the file, in this shape."""
        return part

    def done(self, result: SpeechResult, audio_s: float) -> bytes:  # noqa: ARG002
        """Return the end of a speech that succeeded.

        Args:
            result: The engine's result.
            audio_s: Seconds of audio sent.
        """
        return b""

    def failed(self, error: SpeechError) -> bytes:  # noqa: ARG002
        """Return the end of a speech that failed; if empty, the connection is cut off instead."""
        return b""

    def whole(self, file: bytes, result: SpeechResult, audio_s: float) -> bytes:
        """Return the body with a speech that is complete.

        Args:
            file: The audio.
            result: The engine's result.
            audio_s: Seconds of audio in it.
        """
        return self.sound(file) + self.done(result, audio_s)
