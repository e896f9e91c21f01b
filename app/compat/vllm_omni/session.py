"""vLLM-Omni's messages on the path that its WebSocket and ours share: `/v1/audio/speech/stream`.

The first message tells which protocol a client speaks: `session.config` is theirs. Its text is
spoken while it is written whatever `split_granularity` says; each text is told as one sentence.
Source: `vllm_omni/entrypoints/openai/serving_speech_stream.py` of vLLM-Omni.
"""

import json
from base64 import b64encode
from collections.abc import Sequence
from typing import Any, Final, Literal

from fastapi import APIRouter, WebSocket
from pydantic import ConfigDict, Field, ValidationError

from app.api.errors import invalid
from app.api.lenient import validated
from app.api.realtime.route import serve_protocol
from app.api.realtime.session import check_voice
from app.api.realtime.speech import LiveSpeech, SpeechMessages
from app.api.realtime.valle import PROTOCOL, ValleSession
from app.api.requests import check_json_size, check_model, cleaned_body, model_names, sized_json
from app.api.schemas import SoundFormatName, SpeechOptions
from app.api.services import Services
from app.audio.containers import wav_header
from app.audio.formats import AudioFormat
from app.compat.timed_words import FinalWords
from app.engine.core import SpeechResult
from app.engine.errors import InvalidRequest, SpeechError
from app.engine.results import WordTimes

_CLOSED: Final = 1000
_OPEN: Final = "utterance"
_CONFIG: Final = "session.config"
_BYTES_A_SAMPLE: Final = 2

stream_router = APIRouter()


class SessionConfig(SpeechOptions):
    """How a session speaks, until the next message of this kind."""

    model_config = ConfigDict(title="SessionConfig")

    type: Literal["session.config"]
    speaker: str | None = Field(None, max_length=200, description="Another name of `voice`.")
    response_format: SoundFormatName = "wav"
    stream_audio: bool = False
    word_timestamps: bool = False
    split_granularity: Literal["none", "sentence", "clause"] = "none"


@stream_router.websocket("/v1/audio/speech/stream")
async def either_protocol(websocket: WebSocket) -> None:
    """Speak a text while it is being written, by our messages or vLLM-Omni's."""
    await serve_protocol(websocket, StreamSession, PROTOCOL)


class StreamSession(ValleSession):
    """A session of our protocol, or of vLLM-Omni's from its first `session.config` on."""

    def __init__(self, websocket: WebSocket, services: Services) -> None:
        super().__init__(websocket, services)
        self._config: SessionConfig | None = None
        self._utterances = 0  # that were ended

    async def handle(self, message: str | bytes) -> None:
        """Act on a message of either protocol."""
        theirs = self._config is not None
        if not theirs and (self.speeches or not isinstance(message, str)):
            await super().handle(message)
            return
        if not theirs and _CONFIG not in message:
            await super().handle(message)
            return
        try:
            sent = _read(message, self._services.settings.max_body_bytes)
            if not theirs and sent.get("type") != _CONFIG:
                await super().handle(message)
                return
            await self._act(sent, str(message))
        except SpeechError as error:
            await self.tell("error", message=error.message)
            if self._config is None:  # theirs ends where it cannot be configured
                await self._close()

    async def timed_out(self) -> None:
        """Tell that the session was idle, and close."""
        if self._config is None:
            await super().timed_out()
            return
        await self.tell("error", message="Idle timeout: no message received")
        await self._close()

    async def tell(self, kind: str, **fields: Any) -> None:
        """Send a message."""
        await self._socket.text(json.dumps({"type": kind, **fields}))

    async def _close(self) -> None:
        await self._socket.close(_CLOSED, "")
        self.over = True

    async def _act(self, sent: dict[str, Any], raw: str) -> None:
        await self.settle()
        speech = self.speeches.get(_OPEN)
        writing = speech is not None and not speech.growing.ended
        match sent.get("type"):
            case "session.config" if writing:
                raise InvalidRequest("send input.done before another session.config", param="type")
            case "session.config":
                await self._configure(raw)
            case "input.text":
                text = sent.get("text", "")
                if not isinstance(text, str):
                    raise InvalidRequest("input.text requires a string value", param="text")
                if text.strip() or writing:
                    speech = speech if writing else await self._begin()
                    assert speech is not None
                    await speech.append(text)
            case "input.done" if writing:
                assert speech is not None
                speech.growing.end()
                self._utterances += 1
            case "input.done":
                await self._finish_speaking()
                await self.tell("session.done", utterance_index=self._utterances, total_sentences=0)
                self._utterances += 1
            case "session.close":
                await self._finish_speaking()
                await self._close()
            case kind:
                raise InvalidRequest(f"Unknown message type: {str(kind)[:64]}", param="type")

    async def _configure(self, raw: str) -> None:
        """Take a configuration; the one before stays if it is refused."""
        content, _ = cleaned_body(raw, SessionConfig)
        try:
            config = validated(
                lambda text: SessionConfig.model_validate_json(text, strict=True), content
            )
        except ValidationError as error:
            raise invalid(error) from error
        if config.stream_audio and config.response_format != "pcm":
            raise InvalidRequest("stream_audio needs response_format pcm", param="response_format")
        if config.word_timestamps and not config.stream_audio:
            raise InvalidRequest("word_timestamps needs stream_audio", param="word_timestamps")
        services = self._services
        check_model(config.model, services.engine.info.name, model_names(services.settings))
        given: dict[str, Any] = {"voice": config.voice or config.speaker}
        if config.word_timestamps:
            given["timestamps"] = "word"
        await check_voice(services, given["voice"], self._owner)
        self._config = config.model_copy(update=given)

    async def _begin(self) -> LiveSpeech:
        """Begin an utterance, after the one that is being spoken."""
        await self._finish_speaking()
        config = self._config
        assert config is not None
        rate_hz = config.sample_rate or self._services.engine.info.sample_rate_hz
        messages = _Narration(self, config, self._utterances, rate_hz)
        wav = config.response_format == "wav"  # whose header is written when its length is known
        form: AudioFormat = "pcm" if wav else config.response_format
        return await self.begin(_OPEN, config, form, messages)

    async def _finish_speaking(self) -> None:
        if _OPEN in self.speeches:
            await self.speeches[_OPEN].speaking
            await self.settle()

    @property
    def text(self) -> str:
        """The text of the utterance so far."""
        speech = self.speeches.get(_OPEN)
        return speech.growing.text if speech else ""

    async def send_audio(self, sound: bytes) -> None:
        """Send a binary frame."""
        await self._socket.audio(sound)


class _Narration(SpeechMessages):
    """The messages of one utterance, each with its number."""

    def __init__(
        self, session: StreamSession, config: SessionConfig, number: int, rate_hz: int
    ) -> None:
        super().__init__()
        self._session = session
        self._config = config
        self._rate_hz = rate_hz
        self._place = {"utterance_index": number, "sentence_index": 0}
        self._file = bytearray()  # of an utterance that is sent whole
        self._bytes = 0  # of audio, sent
        self._started = False
        self._chunks = 0
        self._final = FinalWords()
        self._words = list[WordTimes]()

    async def sound(self, sound: bytes, words: Sequence[WordTimes]) -> None:
        """Send the next bytes, or keep them for the end."""
        self._words += self._final.add(words)
        if not sound:
            return
        if not self._config.stream_audio:
            self._file += sound
            return
        await self._start(self._session.text)
        if self._config.word_timestamps:
            await self._chunk(sound, None)
        else:
            await self._session.send_audio(sound)
        self._bytes += len(sound)

    async def ended(
        self,
        speech: LiveSpeech,
        error: SpeechError | None,
        result: SpeechResult | None,
    ) -> None:
        """Send a file that is whole, and the end; of an utterance that failed an error before."""
        await self._start(speech.growing.text)
        if error is not None:
            partial = {"partial_audio": True, "action": "discard"} if self._bytes else {}
            await self._session.tell("error", message=error.message, **partial)
        elif result is not None and not self._config.stream_audio:
            wav = self._config.response_format == "wav"
            head = wav_header(self._rate_hz, len(self._file)) if wav else b""
            await self._session.send_audio(head + bytes(self._file))
            self._bytes = len(head) + len(self._file)
        elif result is not None and self._config.word_timestamps:
            await self._chunk(b"", [self._timed(word) for word in self._words if not word.missing])
        failed = result is None
        done = {"total_bytes": self._bytes, "error": failed}
        await self._session.tell("audio.done", **self._place, **done)
        if speech.growing.ended:  # else it follows `input.done`
            number = self._place["utterance_index"]
            await self._session.tell("session.done", utterance_index=number, total_sentences=1)

    async def _start(self, text: str) -> None:
        """Send `audio.start`, once."""
        if self._started:
            return
        self._started = True
        about: dict[str, Any] = {"sentence_text": text, "format": self._config.response_format}
        if self._config.stream_audio:
            about |= {"sample_rate": self._rate_hz, "channels": 1}
        if self._config.word_timestamps:
            about["word_timestamps"] = True
        await self._session.tell("audio.start", **self._place, **about)

    async def _chunk(self, sound: bytes, timestamps: list[dict[str, Any]] | None) -> None:
        ends = [self._bytes, self._bytes + len(sound)]
        start_ms, end_ms = (
            round(1000 * end / _BYTES_A_SAMPLE / self._rate_hz) if sound or place else 0
            for place, end in enumerate(ends)
        )
        await self._session.tell(
            "audio.chunk",
            **self._place,
            chunk_id=self._chunks,
            chunk_start_ms=start_ms,
            chunk_end_ms=end_ms,
            sample_rate=self._rate_hz,
            channels=1,
            audio_b64=b64encode(sound).decode(),
            timestamps=timestamps,
        )
        self._chunks += 1

    def _timed(self, word: WordTimes) -> dict[str, Any]:
        heard = word.at_speed(self._config.speed)
        end_s = heard.start_s if heard.end_s is None else heard.end_s
        return {
            "word": word.shown,
            "start_ms": round(1000 * heard.start_s),
            "end_ms": round(1000 * end_s),
        }


def _read(raw: str | bytes, most_bytes: int) -> dict[str, Any]:
    """Return the JSON object of a message."""
    if isinstance(raw, bytes) or len(raw.encode(errors="replace")) > most_bytes:
        raise InvalidRequest(f"send text of at most {most_bytes} bytes")
    check_json_size(raw)
    try:
        sent = sized_json(raw)
    except ValueError:
        sent = None
    if not isinstance(sent, dict):
        raise InvalidRequest("WebSocket messages must be JSON objects")
    return sent
