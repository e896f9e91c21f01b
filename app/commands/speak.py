"""`valle-serve speak`: a text into a WAV file, in this process."""

import asyncio
import logging
import sys
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import AliasChoices, Field
from pydantic_settings import CliPositionalArg
from tqdm import tqdm

from app.api.schemas import SpeechRequest
from app.commands.errors import CommandError
from app.commands.output import check_folder, write_whole
from app.engine.errors import SpeechError
from app.engine.job import AudioChunk
from app.settings import Settings

if TYPE_CHECKING:
    from app.engine.ticket import SpeechStream


class Speak(SpeechRequest):
    """Speak a text into a WAV file; with --trace its account goes to a .json beside it."""

    input: CliPositionalArg[str] = Field(description="What to say; - reads it from stdin.")
    model: str | None = Field(None, description="Model folder; none is what TTS_MODEL names.")
    response_format: Literal["wav"] = Field("wav", description="Only wav is written.")
    stream: Literal[False] | None = Field(None, description="A file is written whole.")
    out: Path = Field(
        validation_alias=AliasChoices("o", "out"), description="The WAV file to write."
    )

    def cli_cmd(self) -> None:
        """Speak and say what was done.

        Raises:
            CommandError: A field or the model is wrong.
        """
        check_folder(self.out, "out")
        settings = Settings() if self.model is None else Settings(model=self.model)
        text = sys.stdin.read() if self.input == "-" else self.input
        request = self.model_copy(update={"input": text})
        _write(self.out, request, asyncio.run(_speak(settings, request)))


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
        write_whole(out.with_name(out.name + ".json"), report.encode(), "out")
    samples = np.concatenate([chunk.samples for chunk in chunks])
    write_whole(out, wav(samples, chunks[0].sample_rate_hz), "out")
    print(
        f"{out}: {result.audio_s:.2f} s of speech in {result.timings.total_s:.2f} s,"
        f" voice {result.voice}, seed {result.seed}, ended by {result.finish_reason}",
        file=sys.stderr,
    )
