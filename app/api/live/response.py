"""One response of a live session: its text comes in, its sound goes out."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from time import monotonic

from app.api.errors import speech_error_detail
from app.api.live.messages import (
    ErrorMessage,
    InputText,
    InputTextAck,
    InputTextAppend,
    InputTextFlush,
    ResponseDone,
    ResponseStarted,
    ResponseTrace,
)
from app.api.live.socket import ClientGone, LiveSocket
from app.api.output import output_of
from app.api.reports.recent import Failure, RecentSpeeches
from app.api.reports.writing import ReportWriter, blank_report, utterance_pieces
from app.api.schemas import Usage
from app.api.speech.workshop import Workshop
from app.audio import wav as audio
from app.audio.delivery import Delivery
from app.audio.rendering import in_portions
from app.engine.continued import GrowingSpeech
from app.engine.errors import GenerationFailed, InvalidRequest, SpeechError
from app.engine.interface import Plan
from app.engine.job import AudioChunk, Samples, SpeechJob, SpeechResult
from app.engine.voices import Voices

log = logging.getLogger(__name__)


class LiveResponse:
    """A speech that is sent as it is made. It ends with one `response.done`, whatever happens.

    Attributes:
        speaking: Done when nothing is left to send; raises ClientGone.
        ending: Whether `response.done` is sent, or about to be.
        active_s: When it last took text to speak or sent sound, by the monotonic clock.
    """

    def __init__(
        self,
        socket: LiveSocket,
        job: SpeechJob,
        speech: GrowingSpeech,
        recent: RecentSpeeches,
        reports: ReportWriter,
        *,
        sample_rate_hz: int,
        voices: Voices,
        workshop: Workshop,
        who: str,
    ) -> None:
        """Begin; `close` must be called.

        Args:
            socket: Where it is sent.
            job: What was asked for, without its text.
            speech: The speech of ``job``.
            recent: Where what becomes of it is kept.
            reports: Writes traces.
            sample_rate_hz: Of its sound.
            voices: Those of the model.
            workshop: Where its sound is shaped.
            who: Whose it is.
        """
        self._rate_hz, self._voices = sample_rate_hz, voices
        self._workshop, self._who = workshop, who
        self._delivery: Delivery | None = None  # until it is known who speaks
        self._socket, self._job, self._speech, self._recent = socket, job, speech, recent
        self._reports = reports
        self._sequence = self._utterances = self._audio_bytes = 0
        self._audio_s = 0.0
        self._text_at_s: float | None = None
        self._first_audio_s: float | None = None
        self.ending = False
        self.active_s = monotonic()
        self.speaking = asyncio.create_task(self._speak())

    @property
    def id(self) -> str:
        """Its name."""
        return self._job.id

    @property
    def waits_for_text(self) -> bool:
        """Whether it has nothing to say until more text comes."""
        return self._speech.waits_for_text

    async def take(self, message: InputText) -> None:
        """Take a message of the text and acknowledge it.

        Raises:
            InvalidRequest: It is not the next one, or the text is too long or has ended.
            ClientGone: The client cannot be told.
        """
        if message.sequence != self._sequence:
            raise InvalidRequest(
                f"sequence must be {self._sequence}, not {message.sequence}", param="sequence"
            )
        if isinstance(message, InputTextAppend):
            await self._speech.append(message.text)
            if message.text.strip():
                self.active_s = monotonic()
        elif isinstance(message, InputTextFlush):
            self._speech.flush()
        else:
            self._speech.end()
        self._sequence += 1
        self._text_at_s = self._text_at_s or monotonic()
        await self._socket.message(InputTextAck(response_id=self.id, sequence=message.sequence))

    async def cancel(self) -> None:
        """Stop speaking and say so; not where it is `ending` anyway.

        Raises:
            ClientGone: The client cannot be told.
        """
        await self._stop()
        await self._end(None)

    async def close(self) -> None:
        """Stop speaking to a client that has left."""
        await self._stop()
        if not self.ending:
            self.ending = True
            self._recent.keep(self._told(), self._failure(None))

    async def _stop(self) -> None:
        self.speaking.cancel()
        await asyncio.gather(self.speaking, return_exceptions=True)
        await self._speech.aclose()

    async def _speak(self) -> None:
        """Send the sound, and at last what became of it.

        Raises:
            ClientGone: The client cannot be told.
        """
        broken: SpeechError | None = None
        try:
            async for chunk in self._speech:
                await self._send(chunk)
            if self._delivery is not None:
                await self._send_sound(self._delivery, self._delivery.close)
        except SpeechError as error:
            broken = error
        except ClientGone:
            raise
        except Exception:
            log.exception("response %s broke", self.id)
            broken = GenerationFailed("the speech could not be made; the log says more")
        await self._end(broken, self._speech.result if broken is None else None)

    async def _send(self, chunk: AudioChunk) -> None:
        """Send a chunk, and what is known of the utterances that it ends.

        Raises:
            ClientGone: It cannot be sent.
        """
        plan = self._speech.plan
        assert plan is not None  # there is sound
        if self._delivery is None:
            self._delivery = self._shaped(plan)
            started = ResponseStarted(
                response_id=self.id,
                seed=plan.seed,
                preset=plan.params.preset,
                voice=plan.voice.name,
                language=plan.language,
            )
            await self._socket.message(started)
        for portion in in_portions(chunk.samples, self._rate_hz):
            await self._send_sound(self._delivery, partial(self._delivery.push, portion))
        if chunk.result is not None and self._job.trace:
            await self._send_traces(chunk.result)

    def _shaped(self, plan: Plan) -> Delivery:
        manner = output_of(self._job, "pcm")
        return Delivery(
            self._rate_hz,
            speed=manner.speed,
            loudness_lufs=manner.loudness_lufs,
            likely_lufs=self._voices.likely_lufs(plan.voice),
        )

    async def _send_sound(self, delivery: Delivery, shape: Callable[[], Samples]) -> None:
        """Send the samples that are certain by now, if there are any.

        Raises:
            ClientGone: They cannot be sent.
        """
        samples = shape() if delivery.plain else await self._workshop.run(self._who, shape)
        if not len(samples):
            return
        sound = audio.pcm(samples)
        await self._socket.sound(sound)
        self.active_s = monotonic()
        if self._first_audio_s is None and self._text_at_s is not None:
            self._first_audio_s = monotonic() - self._text_at_s
        self._audio_bytes += len(sound)
        self._audio_s += len(samples) / self._rate_hz

    async def _send_traces(self, result: SpeechResult) -> None:
        for spoken in result.utterances:
            blank = blank_report(
                spoken, ResponseTrace, response_id=self.id, utterance=self._utterances
            )
            pieces = self._reports.write(utterance_pieces(blank, spoken))
            self._utterances += 1
            await self._socket.text("".join([piece async for piece in pieces]))

    async def _end(self, broken: SpeechError | None, result: SpeechResult | None = None) -> None:
        """Keep what became of it and say so: a result, what broke it, or that it was cancelled.

        Raises:
            ClientGone: The client cannot be told.
        """
        self.ending = True
        failure = self._failure(broken)
        self._recent.keep(self._told(), result or failure)
        if broken is not None:
            error = speech_error_detail(broken)
            await self._socket.message(ErrorMessage(response_id=self.id, error=error))
        so_far, plan = self._speech.result, self._speech.plan
        read, made = self._speech.phonemes, so_far.frames if so_far else 0
        done = ResponseDone(
            response_id=self.id,
            finish_reason=result.finish_reason if result else failure.finish_reason,
            seed=plan.seed if plan else None,
            codes_sha256=result.codes_sha256 if result else None,
            audio_s=self._audio_s,
            audio_bytes=self._audio_bytes,
            first_audio_s=self._first_audio_s,
            timings=so_far.timings if so_far else None,
            usage=Usage.of(read, made),
        )
        await self._socket.message(done)

    def _told(self) -> SpeechJob:
        return replace(self._job, text=self._speech.text)

    def _failure(self, error: SpeechError | None) -> Failure:
        so_far = self._speech.result
        return Failure(
            error,
            self._speech.plan,
            so_far.frames if so_far else 0,
            self._audio_s,
            so_far.utterances if so_far else (),
        )
