"""`valle-serve speak --url`: sends the request to a running server."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2

from app.api.schemas import SpeechOptions
from app.audio.formats import AudioFormat
from app.commands.errors import CommandError, CommandFailed
from app.commands.output import (
    print_status,
    warn_of_idle_knobs,
    warn_of_silence,
    write_file,
)
from app.commands.speech.options import SpeakOptions
from app.commands.speech.player import Player, find_player
from app.commands.speech.subtitles import subtitles
from app.engine.job import WordTimes

_TIMEOUT_S = 600
_NOT_SENT = {"model"}  # here the path of a folder, there a name


def speak_remotely(url: str, options: SpeakOptions, text: str, form: AudioFormat) -> None:
    """Request a speech from a server and write or play it.

    Args:
        url: Base URL of the server.
        options: The command line.
        text: The text; the server limits its length.
        form: Format of the file or of stdout.

    Raises:
        CommandError: The server does not answer, or refuses the request.
    """
    if options.play and options.out is not None:
        raise CommandError("play: with --url, speech goes either to the speakers or to a file")
    fields = set(SpeechOptions.model_fields) - _NOT_SENT
    if options.subtitles is not None and options.target is None:
        raise CommandError("subtitles: with --url they are written beside a file; name one with -o")
    body = options.model_dump(mode="json", include=fields, exclude_unset=True) | {"input": text}
    with _client(url, options) as client:
        if options.play:
            _play(client, body)
        elif options.piped:
            for part, _ in _streamed(client, body | {"response_format": form}):
                sys.stdout.buffer.write(part)
                sys.stdout.buffer.flush()
        else:
            _write(client, options, body | {"response_format": form, "stream": False})


@contextmanager
def _client(url: str, options: SpeakOptions) -> Iterator[httpx2.Client]:
    """Enter an HTTP client of the server."""
    headers = {}
    if options.key is not None:
        headers["Authorization"] = f"Bearer {options.key.get_secret_value()}"
    try:
        with httpx2.Client(
            base_url=url, headers=headers, timeout=_TIMEOUT_S, trust_env=False
        ) as client:
            yield client
    except (httpx2.ConnectError, httpx2.InvalidURL, httpx2.UnsupportedProtocol) as error:
        raise CommandError(f"url: {url}: {error or type(error).__name__}") from error
    except httpx2.TransportError as error:
        raise CommandFailed(f"url: {url}: {error or type(error).__name__}") from error


def _write(client: httpx2.Client, options: SpeakOptions, body: dict[str, Any]) -> None:
    """Write the file and, with `trace`, the report beside it; print a summary."""
    out = options.target
    assert out is not None
    answer = client.post("/v1/audio/speech", json=body)
    _check(answer)
    write_file(out, answer.content, "out")
    if options.trace:
        report = _report(client, answer)
        _check(report)
        write_file(out.with_name(out.name + ".json"), report.content, "out")
    if (path := options.subtitles) is not None:
        report = _report(client, answer)
        _check(report)
        words = [
            WordTimes(**word)
            for utterance in report.json()["utterances"]
            for word in utterance["words"]
        ]
        write_file(path, subtitles(words, path.suffix, body["input"]).encode(), "subtitles")
    _tell(answer)
    if answer.headers["x-finish-reason"] == "empty":
        _warn(client, answer)
    audio_s = float(answer.headers["x-audio-ms"]) / 1000
    print_status(
        f"{out}: {audio_s:.2f} s of speech in {answer.elapsed.total_seconds():.2f} s, voice"
        f" {answer.headers['x-voice']}, seed {answer.headers['x-seed']}, finish reason"
        f" {answer.headers['x-finish-reason']}"
    )


def _play(client: httpx2.Client, body: dict[str, Any]) -> None:
    """Play a speech while it is received."""
    player: Player | None = None
    try:
        for part, rate_hz in _streamed(client, body | {"response_format": "pcm"}):
            player = player or Player(find_player(), rate_hz)
            player.push(part)
        if player is not None:
            player.close()
    finally:
        if player is not None:
            player.abandon()


def _streamed(client: httpx2.Client, body: dict[str, Any]) -> Iterator[tuple[bytes, int]]:
    """Yield the bytes of a streamed speech as they come, with its sample rate in Hz."""
    with client.stream("POST", "/v1/audio/speech", json=body | {"stream": True}) as answer:
        if answer.is_error:
            answer.read()
        _check(answer)
        for part in answer.iter_raw():
            yield part, int(answer.headers["x-sample-rate"])
    _tell(answer)
    _warn(client, answer)  # the head of a stream cannot tell


def _report(client: httpx2.Client, answer: httpx2.Response) -> httpx2.Response:
    """Return the server's answer to a request for the report of a speech."""
    return client.get(f"/v1/audio/speech/{answer.headers['x-request-id']}")


def _tell(answer: httpx2.Response) -> None:
    """Tell the user which flags did nothing, and of what the server warns."""
    warn_of_idle_knobs([*filter(None, answer.headers.get("x-ignored", "").split(", "))])
    if warning := answer.headers.get("x-warning"):
        print_status(f"warning: {warning}")


def _warn(client: httpx2.Client, answer: httpx2.Response) -> None:
    """Tell the user which sentences of a speech have no sound, if the server still knows."""
    report = _report(client, answer)
    if not report.is_error:
        spoken = report.json()["utterances"]
        warn_of_silence([one["finish_reason"] for one in spoken if one["phonemes"]])


def _check(answer: httpx2.Response) -> None:
    """Raise the server's error if it sent one."""
    if not answer.is_error:
        return
    try:
        error = answer.json()["error"]
        message = f"{error['param'] or 'url'}: {error['message']}"
    except (ValueError, KeyError, TypeError):
        message = f"url: {answer.request.url} answers {answer.status_code}"
    raise (CommandError if answer.status_code < 500 else CommandFailed)(message)
