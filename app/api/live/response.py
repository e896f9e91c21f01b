"""One response of a live session: text is appended while audio is sent."""

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
    ResponseTimestamps,
    ResponseTrace,
)
from app.api.live.socket import ClientGone, LiveSocket
from app.api.render_pool import RenderPool
from app.api.reports.recent import Failure, RecentSpeeches
from app.api.reports.writer import ReportWriter, blank_report, utterance_pieces
from app.api.requests import output_of
from app.api.schemas import Usage, UtteranceText, WordTimes
from app.audio.containers import pcm
from app.audio.rendering import Delivery, split_portions
from app.engine.continued import GrowingSpeech
from app.engine.errors import GenerationFailed, InvalidRequest, SpeechError
from app.engine.interface import Plan
from app.engine.job import AudioChunk, Samples, SpeechJob, SpeechResult
from app.engine.voices import Voices

log = logging.getLogger(__name__)


class LiveResponse:
    """Sends a speech while it is generated, and always exactly one `response.done`.

    Attributes:
        speaking: Task that sends the audio; raises ClientGone.
        ending: Whether `response.done` was sent or is about to be.
        active_s: Monotonic time at which text was last accepted or audio last sent.
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
        render_pool: RenderPool,
        client: str,
    ) -> None:
        """Start sending. The caller must call `close`.

        Args:
            socket: Where messages and audio are sent.
            job: The request, without its text.
            speech: The speech of ``job``.
            recent: Store of results.
            reports: Writes traces.
            sample_rate_hz: Sample rate.
            voices: The model's voices.
            render_pool: Threads for tempo and loudness.
            client: Whose queue of ``render_pool`` is used.
        """
        self._rate_hz, self._voices = sample_rate_hz, voices
        self._render_pool, self._client = render_pool, client
        self._delivery: Delivery | None = None  # until the voice is known
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
        """The response id."""
        return self._job.id

    @property
    def waits_for_text(self) -> bool:
        """Whether all text so far has been spoken."""
        return self._speech.waits_for_text

    async def take(self, message: InputText) -> None:
        """Accept a text message and acknowledge it.

        Raises:
            InvalidRequest: It is out of sequence, the text is too long, or the text has ended.
            ClientGone: The client has disconnected or does not read.
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
        """Stop and send `response.done`, unless that is being sent already.

        Raises:
            ClientGone: The client has disconnected or does not read.
        """
        await self._stop()
        await self._end(None)

    async def close(self) -> None:
        """Stop, for a client that has disconnected; store the result."""
        await self._stop()
        if not self.ending:
            self.ending = True
            self._recent.keep(self._job_with_text(), self._failure(None))

    async def _stop(self) -> None:
        self.speaking.cancel()
        await asyncio.gather(self.speaking, return_exceptions=True)
        await self._speech.aclose()

    async def _speak(self) -> None:
        """Send the audio, then `response.done`.

        Raises:
            ClientGone: The client has disconnected or does not read.
        """
        error: SpeechError | None = None
        try:
            async for chunk in self._speech:
                await self._send(chunk)
            if self._delivery is not None:
                await self._send_audio(self._delivery, self._delivery.close)
        except SpeechError as raised:
            error = raised
        except ClientGone:
            raise
        except Exception:
            log.exception("response %s failed", self.id)
            error = GenerationFailed("the speech could not be generated; the log has the details")
        await self._end(error, self._speech.result if error is None else None)

    async def _send(self, chunk: AudioChunk) -> None:
        """Send a chunk, and the traces of utterances that end with it.

        Raises:
            ClientGone: The client has disconnected or does not read.
        """
        plan = self._speech.plan
        assert plan is not None  # known with the first audio
        if self._delivery is None:
            self._delivery = self._open_delivery(plan)
            started = ResponseStarted(
                response_id=self.id,
                seed=plan.seed,
                preset=plan.params.preset,
                voice=plan.voice.name,
                language=plan.language,
            )
            await self._socket.message(started)
        if chunk.words:
            words = [WordTimes.of(one, self._job.speed) for one in chunk.words]
            await self._socket.message(ResponseTimestamps(response_id=self.id, words=words))
        for portion in split_portions(chunk.samples, self._rate_hz):
            await self._send_audio(self._delivery, partial(self._delivery.push, portion))
        if chunk.result is not None and self._job.trace:
            await self._send_traces(chunk.result)

    def _open_delivery(self, plan: Plan) -> Delivery:
        """Return the tempo and loudness filters, once the voice is known."""
        output = output_of(self._job, "pcm")
        return Delivery(
            self._rate_hz,
            speed=output.speed,
            loudness_lufs=output.loudness_lufs,
            likely_lufs=self._voices.likely_lufs(plan.voice),
        )

    async def _send_audio(self, delivery: Delivery, produce: Callable[[], Samples]) -> None:
        """Filter samples and send those that are complete, if any.

        Raises:
            ClientGone: The client has disconnected or does not read.
        """
        samples = (
            produce() if delivery.plain else await self._render_pool.run(self._client, produce)
        )
        if not len(samples):
            return
        data = pcm(samples)
        await self._socket.audio(data)
        self.active_s = monotonic()
        if self._first_audio_s is None and self._text_at_s is not None:
            self._first_audio_s = monotonic() - self._text_at_s
        self._audio_bytes += len(data)
        self._audio_s += len(samples) / self._rate_hz

    async def _send_traces(self, result: SpeechResult) -> None:
        """Send a `response.trace` for each utterance."""
        for spoken in result.utterances:
            blank = blank_report(
                spoken,
                ResponseTrace,
                self._job.speed,
                response_id=self.id,
                utterance=self._utterances,
            )
            pieces = self._reports.write(utterance_pieces(blank, spoken))
            self._utterances += 1
            await self._socket.text("".join([piece async for piece in pieces]))

    async def _end(self, error: SpeechError | None, result: SpeechResult | None = None) -> None:
        """Store the outcome and send `response.done`: after a result, an error, or a cancellation.

        Raises:
            ClientGone: The client has disconnected or does not read.
        """
        self.ending = True
        failure = self._failure(error)
        self._recent.keep(self._job_with_text(), result or failure)
        if error is not None:
            detail = speech_error_detail(error)
            await self._socket.message(ErrorMessage(response_id=self.id, error=detail))
        so_far, plan = self._speech.result, self._speech.plan
        phonemes, frames = self._speech.phonemes, so_far.frames if so_far else 0
        done = ResponseDone(
            response_id=self.id,
            finish_reason=result.finish_reason if result else failure.finish_reason,
            seed=plan.seed if plan else None,
            codes_sha256=result.codes_sha256 if result else None,
            audio_s=self._audio_s,
            audio_bytes=self._audio_bytes,
            first_audio_s=self._first_audio_s,
            timings=so_far.timings if so_far else None,
            usage=Usage.of(phonemes, frames),
            utterances=UtteranceText.all_of(so_far, self._job.speed),
        )
        await self._socket.message(done)

    def _job_with_text(self) -> SpeechJob:
        """Return the job with the text received so far."""
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
