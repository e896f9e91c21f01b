"""The command line: serve, speak, doctor.

Every flag comes from a declaration elsewhere: `serve` has the settings, `speak` the request with
all its sampling knobs. torch is imported where work begins, so that `--help` is quick.
"""

import asyncio
import logging
import math
import platform
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import AliasChoices, BaseModel, Field, ValidationError
from pydantic_settings import (
    CliApp,
    CliPositionalArg,
    CliSubCommand,
    SettingsError,
)
from tqdm import tqdm

from app.api.schemas import SpeechRequest
from app.engine.errors import SpeechError
from app.engine.job import AudioChunk
from app.settings import Settings

if TYPE_CHECKING:
    from app.engine.ticket import SpeechStream

FAILED = 1
MISUSED = 2
INTERRUPTED = 130


class CommandError(Exception):
    """Ends the command; the message is one line, `field: what is wrong`."""


class Serve(Settings):
    """Serve speech over HTTP."""

    def cli_cmd(self) -> None:
        """Serve until interrupted."""
        import uvicorn

        from app.main import create_app

        _log_to_stderr(self.log_level)
        uvicorn.run(
            create_app(self),
            host=self.host,
            port=self.port,
            log_level=self.log_level,
            server_header=False,
            timeout_graceful_shutdown=math.ceil(self.drain_timeout_s),
        )


class Speak(SpeechRequest):
    """Speak a text into a WAV file; with --trace its account goes to a .json beside it."""

    input: CliPositionalArg[str] = Field(description="What to say; - reads it from stdin.")
    model: str | None = Field(None, description="Model folder; none is what TTS_MODEL names.")
    out: Path = Field(
        validation_alias=AliasChoices("o", "out"), description="The WAV file to write."
    )

    def cli_cmd(self) -> None:
        """Speak and say what was done.

        Raises:
            CommandError: A field or the model is wrong.
        """
        if not self.out.parent.is_dir():
            raise CommandError(f"out: {self.out.parent} is no folder")
        settings = Settings() if self.model is None else Settings(model=self.model)
        text = sys.stdin.read() if self.input == "-" else self.input
        request = self.model_copy(update={"input": text})
        _write(self.out, request, asyncio.run(_speak(settings, request)))


class Doctor(Settings):
    """Check that this machine can speak, and say what to do if not."""

    def cli_cmd(self) -> None:
        """Print one line a check.

        Raises:
            SystemExit: A check failed.
        """
        checks: dict[str, Callable[[Settings], str]] = {
            "python": lambda _: platform.python_version(),
            "device": _check_device,
            "espeak": _check_espeak,
            "model": _check_model,
            "port": _check_port,
        }
        failed = False
        for name, check in checks.items():
            try:
                print(f"ok    {name}: {check(self)}")
            except Exception as error:
                failed = True
                print(f"FAIL  {name}: {error}")
        if failed:
            raise SystemExit(FAILED)


class ValleServe(BaseModel):
    """Speech from text, with every knob of the sampler in the request."""

    serve: CliSubCommand[Serve] = Field(description="Serve speech over HTTP.")
    speak: CliSubCommand[Speak] = Field(description="Speak a text into a WAV file.")
    doctor: CliSubCommand[Doctor] = Field(description="Check that this machine can speak.")

    def cli_cmd(self) -> None:
        """Run the command that was chosen."""
        CliApp.run_subcommand(self, cli_exit_on_error=False)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        arguments: None takes the process's own.

    Returns:
        The exit status: 0, 1 if something broke, 2 if the request cannot be met.
    """
    try:
        CliApp.run(
            ValleServe,
            cli_args=list(sys.argv[1:] if arguments is None else arguments),
            cli_exit_on_error=False,
        )
    except ValidationError as error:
        _complain(*_sentences(error))
    except (SettingsError, CommandError) as error:
        _complain(str(error).removeprefix("error parsing CLI: ").strip())
    except KeyboardInterrupt:
        return INTERRUPTED
    else:
        return 0
    return MISUSED


def _sentences(error: ValidationError) -> list[str]:
    """Return `field: message` for each problem, without the command's name before the field."""
    sentences = []
    for problem in error.errors():
        field = ".".join(map(str, problem["loc"][1:])).replace("_", "-")
        message = problem["msg"].removeprefix("Value error, ")
        sentences.append(f"{field}: {message}" if field else message)
    return sentences


def _complain(*sentences: str) -> None:
    for sentence in sentences:
        print(sentence, file=sys.stderr)


def _log_to_stderr(level: str) -> None:
    logging.basicConfig(
        level=level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )


async def _speak(settings: Settings, request: SpeechRequest) -> list[AudioChunk]:
    """Speak in this process, with a bar on the terminal.

    Raises:
        CommandError: The model cannot be loaded or the request cannot be met.
    """
    from app.main import create_engine

    logging.basicConfig(level=logging.CRITICAL)  # what goes wrong is raised, and said once
    async with create_engine(settings) as engine:
        try:
            await engine.wait_ready()
            async with aclosing(engine.submit(request.job("speak"))) as chunks:
                return await _watched(chunks)
        except SpeechError as error:
            broken = engine.status.error
            where = "model" if broken else error.param or "speak"
            raise CommandError(f"{where}: {broken or error.message}") from error


async def _watched(stream: "SpeechStream") -> list[AudioChunk]:
    """Return a job's chunks, showing its frames as they come if somebody watches."""
    chunks = []
    with tqdm(unit=" frames", disable=None, leave=False) as bar:

        async def show() -> None:
            while True:
                at = stream.progress
                bar.set_description(f"sentence {at.utterance + 1} of {max(1, at.utterances)}")
                bar.update(at.frames - bar.n)
                await asyncio.sleep(0.1)

        showing = asyncio.create_task(show())
        try:
            async for chunk in stream:
                chunks.append(chunk)
        finally:
            showing.cancel()
    return chunks


def _write(out: Path, request: SpeechRequest, chunks: Sequence[AudioChunk]) -> None:
    """Write the sound, and with `trace` its account beside it; say what it is on stderr."""
    import numpy as np

    from app.api.audio import wav
    from app.api.recent import report_json

    result = chunks[-1].result
    assert result is not None
    if request.trace:
        report = report_json(request.job(result.job_id), result)
        _put(out.with_name(out.name + ".json"), report.encode())
    _put(out, wav(np.concatenate([chunk.samples for chunk in chunks]), chunks[0].sample_rate_hz))
    print(
        f"{out}: {result.audio_s:.2f} s of speech in {result.timings.total_s:.2f} s,"
        f" voice {result.voice}, seed {result.seed}, ended by {result.finish_reason}",
        file=sys.stderr,
    )


def _put(out: Path, content: bytes) -> None:
    """Write a file, whole or not at all.

    Raises:
        CommandError: It cannot be written.
    """
    partial = out.with_name(out.name + ".partial")
    try:
        partial.write_bytes(content)
        partial.replace(out)
    except OSError as error:
        raise CommandError(f"out: {out}: {error.strerror}") from error


def _check_device(settings: Settings) -> str:
    import torch

    from app.engine.synthesis import choose_device

    if settings.device == "cuda" and not torch.cuda.is_available():
        raise CommandError(
            f"torch {torch.__version__} sees no GPU; install its CUDA build and the driver,"
            " or set TTS_DEVICE=cpu"
        )
    place = choose_device(settings.device)
    name = torch.cuda.get_device_name(place) if place.type == "cuda" else platform.processor()
    return f"{place} {name}".strip() + f", torch {torch.__version__}"


def _check_espeak(_: Settings) -> str:
    from models.text import phonemize

    sounds = phonemize("hello")
    if not sounds:
        raise CommandError("espeak-ng gives no phonemes; run scripts/install again")
    return f"hello is {sounds}"


def _check_model(settings: Settings) -> str:
    import torch

    from models.checkpoints import CheckpointError, load_speech_model

    try:
        speech = load_speech_model(settings.model, torch.device("cpu"))
    except CheckpointError as error:
        raise CommandError(f"{error}; name another folder with --model or TTS_MODEL") from error
    codec = speech.codec
    second = torch.zeros(codec.config.sample_rate_hz)
    decoded = codec.decode(codec.encode(second))
    if not torch.isfinite(decoded).all():
        raise CommandError("the codec turns silence into samples that are no numbers")
    millions = sum(weights.numel() for weights in speech.model.parameters()) / 1e6
    return (
        f"{speech.name}, {millions:.1f} M parameters, codec {codec.config.sample_rate_hz} Hz,"
        f" sha256 {speech.sha256[:12]}"
    )


def _check_port(settings: Settings) -> str:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((settings.host, settings.port))
        except OSError as error:
            raise CommandError(
                f"{settings.host}:{settings.port}: {error.strerror}; free it or set TTS_PORT"
            ) from error
        return f"{settings.host}:{probe.getsockname()[1]} is free"
