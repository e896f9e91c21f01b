"""`valle-serve speak --url`: by a running server, which has its model loaded."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import httpx2

from app.api.schemas import SpeechOptions
from app.audio.formats import AudioFormat
from app.commands.errors import CommandError, CommandFailed
from app.commands.output import say, write_whole
from app.commands.speech.player import Player, find_player

if TYPE_CHECKING:
    from app.commands.speak import Speak

_TIMEOUT_S = 600
_OURS = {"model"}  # a folder here; a server's is named by nobody


def speak_by(url: str, command: "Speak", text: str, form: AudioFormat) -> None:
    """Let a server speak a text.

    Args:
        url: Of the server, without a path.
        command: How to speak, and where to.
        text: At most as long as the server takes.
        form: Of the file, or of what goes to stdout.

    Raises:
        CommandError: There is no such server, or it refuses.
        CommandFailed: It broke amid the speech.
    """
    if command.play and command.out is not None:
        raise CommandError("play: a server's speech goes either to the speakers or to a file")
    fields = set(SpeechOptions.model_fields) - _OURS
    body = command.model_dump(mode="json", include=fields, exclude_unset=True) | {"input": text}
    with _client(url, command) as client:
        if command.play:
            _play(client, body)
        elif command.piped:
            for part, _ in _streamed(client, body | {"response_format": form}):
                sys.stdout.buffer.write(part)
                sys.stdout.buffer.flush()
        else:
            _write(client, command, body | {"response_format": form, "stream": False})


@contextmanager
def _client(url: str, command: "Speak") -> Iterator[httpx2.Client]:
    """Give a client of a server.

    Raises:
        CommandError: It does not answer.
        CommandFailed: It stops answering.
    """
    headers = {}
    if command.key is not None:
        headers["Authorization"] = f"Bearer {command.key.get_secret_value()}"
    try:
        with httpx2.Client(
            base_url=url, headers=headers, timeout=_TIMEOUT_S, trust_env=False
        ) as client:
            yield client
    except (httpx2.ConnectError, httpx2.InvalidURL, httpx2.UnsupportedProtocol) as error:
        raise CommandError(f"url: {url}: {error or type(error).__name__}") from error
    except httpx2.TransportError as error:
        raise CommandFailed(f"url: {url}: {error or type(error).__name__}") from error


def _write(client: httpx2.Client, command: "Speak", body: dict[str, Any]) -> None:
    """Write a file, with `trace` its account beside it, and say what it is."""
    out = command.target
    assert out is not None
    answer = client.post("/v1/audio/speech", json=body)
    _check(answer)
    write_whole(out, answer.content, "out")
    if command.trace:
        account = client.get(f"/v1/audio/speech/{answer.headers['x-request-id']}")
        _check(account)
        write_whole(out.with_name(out.name + ".json"), account.content, "out")
    audio_s = float(answer.headers["x-audio-ms"]) / 1000
    say(
        f"{out}: {audio_s:.2f} s of speech in {answer.elapsed.total_seconds():.2f} s, voice"
        f" {answer.headers['x-voice']}, seed {answer.headers['x-seed']}, ended by"
        f" {answer.headers['x-finish-reason']}"
    )


def _play(client: httpx2.Client, body: dict[str, Any]) -> None:
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
    """Yield the bytes of a speech as they come, with the rate of its samples."""
    with client.stream("POST", "/v1/audio/speech", json=body | {"stream": True}) as answer:
        if answer.is_error:
            answer.read()
        _check(answer)
        for part in answer.iter_raw():
            yield part, int(answer.headers["x-sample-rate"])


def _check(answer: httpx2.Response) -> None:
    """Do nothing if a server did what it was asked for.

    Raises:
        CommandError: It refused.
        CommandFailed: It could not.
    """
    if not answer.is_error:
        return
    try:
        error = answer.json()["error"]
        said = f"{error['param'] or 'url'}: {error['message']}"
    except (ValueError, KeyError, TypeError):
        said = f"url: {answer.request.url} answers {answer.status_code}"
    raise (CommandError if answer.status_code < 500 else CommandFailed)(said)
