"""A speech by a client of the service: to a file, to stdout or to the speakers."""

import asyncio
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx2
from pydantic import TypeAdapter

from app.api.schemas import SpeechOptions
from app.audio.formats import AudioFormat
from app.commands.client import check_answer
from app.commands.errors import CommandFailed
from app.commands.output import print_status, write_file
from app.commands.speech.book_file import BOOK_SUFFIXES, write_book
from app.commands.speech.documents.document import Document
from app.commands.speech.options import SpeakOptions
from app.commands.speech.player import Player, find_player
from app.commands.speech.subtitles import subtitles
from app.engine.results import WordTimes
from samplers.knobs.features import idle_knobs
from samplers.knobs.params import SamplingParams

_PATH = "/v1/audio/speech"
_WORDS = TypeAdapter(list[WordTimes])
_MOST_LISTED = 10  # of what was left out
_SHOWN = 5  # numbers of sentences in a message
_NOT_SENT = {"model"}  # here the path of a folder, there a name


class SpeechClient:
    """One run of `speak`, to a file or stdout of a format."""

    def __init__(
        self,
        client: httpx2.AsyncClient,
        options: SpeakOptions,
        document: Document,
        form: AudioFormat,
    ) -> None:
        self._client = client
        self._options = options
        self._form = form
        self._document = document
        # where its chapters begin in the sound, at speed 1, once it is spoken
        self.begins_s: Callable[[], Sequence[float]] = lambda: ()
        fields = set(SpeechOptions.model_fields) - _NOT_SENT
        body = options.model_dump(mode="json", include=fields, exclude_unset=True)
        self._body: Mapping[str, Any] = body | {"input": document.text}

    async def speak(self) -> None:
        """Request the speech, write it where the command line says, and print a summary."""
        options = self._options
        out = self._options.target
        if options.play or options.piped:
            answer = await self._stream()
        else:
            answer = await self._post()
        report = await self._report(answer)
        if out is not None and options.play:  # what was played is decoded again, for the file
            kept = f"{_PATH}/{answer.headers['x-request-id']}/audio"
            played = await self._client.get(kept, params={"response_format": self._form})
            await check_answer(played)
            self._write(out, played)
        elif out is not None:
            self._write(out, answer)
        if options.trace and out is not None:
            write_file(report_of(out), report.content, "out")
        if (path := options.subtitles) is not None:
            spoken = report.json()["utterances"]
            words = _WORDS.validate_python([word for one in spoken for word in one["words"]])
            cues = subtitles(words, path.suffix, self._body["input"])
            write_file(path, cues.encode(), "subtitles")
        self._warn(answer, report)
        if not options.piped:
            self._summarise(answer, report)

    def _write(self, out: Path, answer: httpx2.Response) -> None:
        """Write the file."""
        if out.suffix.lower() not in BOOK_SUFFIXES:
            write_file(out, answer.content, "out")
            return
        end_s = float(answer.headers["x-audio-ms"]) / 1000
        begins_s = [at / self._options.speed for at in self.begins_s()]
        write_book(out, answer.content, self._document, [*begins_s, end_s])

    async def _post(self) -> httpx2.Response:
        body = {**self._body, "response_format": self._form, "stream": False}
        answer = await self._client.post(_PATH, json=body)
        await check_answer(answer)
        return answer

    async def _stream(self) -> httpx2.Response:
        """Play or pipe the speech while it is received; return the response."""
        play = self._options.play
        body = {**self._body, "response_format": "pcm" if play else self._form, "stream": True}
        player: Player | None = None
        try:
            async with self._client.stream("POST", _PATH, json=body) as answer:
                await check_answer(answer)
                async for part in answer.aiter_raw():
                    if play:
                        rate_hz = int(answer.headers["x-sample-rate"])
                        player = player or Player(find_player(), rate_hz)
                        await asyncio.to_thread(player.push, part)
                    else:
                        sys.stdout.buffer.write(part)
                        sys.stdout.buffer.flush()
            if player is not None:
                await asyncio.to_thread(player.close)
        except httpx2.RemoteProtocolError as broken:
            report = await self._client.get(f"{_PATH}/{answer.headers['x-request-id']}")
            error = None if report.is_error else report.json()["error"]
            raise CommandFailed(f"speak: {error['message'] if error else broken}") from broken
        finally:
            if player is not None:
                player.abandon()
        return answer

    async def _report(self, answer: httpx2.Response) -> httpx2.Response:
        """Return the report of a speech, if it is needed, else the response itself."""
        options = self._options
        reason = answer.headers.get("x-finish-reason")
        if not (options.trace or options.subtitles or reason in {None, "empty"}):
            return answer
        report = await self._client.get(f"{_PATH}/{answer.headers['x-request-id']}")
        if options.trace or options.subtitles:
            await check_answer(report)
        return report

    def _warn(self, answer: httpx2.Response, report: httpx2.Response) -> None:
        """Print which flags did nothing, of what the service warns, and what has no sound."""
        params = SamplingParams(**self._options.model_dump(include={*SamplingParams.model_fields}))
        needs = idle_knobs(params, self._options.model_fields_set)
        for name in filter(None, answer.headers.get("x-ignored", "").split(", ")):
            need = f"; it needs {needs[name]}" if name in needs else ""
            print_status(f"warning: --{name} did nothing{need}")
        from models.text.warnings import LEFT_OUT  # its package is only needed here

        unread = json.loads(answer.headers.get("x-left-out", "[]"))
        if report is not answer and not report.is_error:  # of a stream it has all
            unread = report.json()["left_out"]
        for warning in filter(None, answer.headers.get("x-warning", "").split("; ")):
            if not warning.startswith(LEFT_OUT):
                print_status(f"warning: {warning}")
        if unread:
            print_status(
                f"warning: {LEFT_OUT}as the voice does not read it: {self._places(unread)}"
            )
        if report is not answer and not report.is_error:
            spoken = [one for one in report.json()["utterances"] if one["phonemes"]]
            silent = [n for n, one in enumerate(spoken, 1) if one["finish_reason"] == "empty"]
            if silent:
                print_status(f"warning: {_without_sound(silent, len(spoken))}")

    def _places(self, unread: Sequence[str]) -> str:
        """Return what was left out with the lines of the text that have it."""
        document = self._document
        where = [
            (f"line {number}", line) for number, line in enumerate(document.text.split("\n"), 1)
        ]
        if not document.has_lines:
            where = [(f"in {one.title or 'it'}", one.text) for one in document.chapters]
        places = []
        for part in unread[:_MOST_LISTED]:
            found = [place for place, text in where if part in text]
            more = f" and {len(found) - 1} more" if len(found) > 1 else ""
            places.append(f"{part} ({found[0]}{more})" if found else part)
        more = ", and more" if len(unread) > _MOST_LISTED else ""
        return ", ".join(places) + more

    def _summarise(self, answer: httpx2.Response, report: httpx2.Response) -> None:
        """Print how long the speech is, and what repeats it."""
        headers = answer.headers
        audio_s = float(headers.get("x-audio-ms", 0)) / 1000
        reason = "x-finish-reason"
        if reason not in headers and not report.is_error:  # the head of a stream is sent before
            audio_s = report.json()["audio_s"] / self._options.speed
        finish = headers.get(reason) or ("" if report.is_error else report.json()["finish_reason"])
        print_status(
            f"{self._options.target or 'played'}: {audio_s:.2f} s of speech in"
            f" {answer.elapsed.total_seconds():.2f} s, voice {headers['x-voice']}, seed"
            f" {headers['x-seed']}, finish reason {finish or 'unknown'}"
        )


def report_of(out: Path) -> Path:
    """Return the file of a speech's report, beside its sound."""
    return out.with_name(out.name + ".json")


def _without_sound(silent: Sequence[int], sentences: int) -> str:
    """Return which of the sentences have no sound, and what may help."""
    which = "it has no sound"
    if sentences > 1:
        numbers = ", ".join(map(str, silent[:_SHOWN])) + (", ..." if silent[_SHOWN:] else "")
        which = f"{len(silent)} of {sentences} sentences have no sound ({numbers})"
    return (
        f"{which}: the model drew its stop before any frame. Try another --seed, or"
        " --min-frames 30, before which it cannot stop"
    )
