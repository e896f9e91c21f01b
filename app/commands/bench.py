"""`valle-serve bench`: measure the speed of this machine or of a running server."""

import asyncio
import json
import logging
import os
import platform
from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import AliasChoices, BaseModel, Field, PositiveInt, SecretStr

from app.commands.errors import CommandError, CommandFailed
from app.commands.output import check_folder, write_file
from app.settings import Settings
from app.version import VERSION

if TYPE_CHECKING:
    from app.commands.listeners import Listen, LoadResult

    Speaker = tuple[dict[str, Any], Listen]
    """A description of the speech source, and how to request speech from it."""

_BYTES_A_SAMPLE = 2


class Bench(BaseModel):
    """Measure throughput and latency with listeners that each request one sentence after the other.

    Other work on the machine distorts the figures; so does this command, by some percent, if it
    runs on the server's machine.
    """

    at_once: list[PositiveInt] = Field(
        [1, 4], description="Concurrent listeners; the flag may be repeated."
    )
    requests: PositiveInt = Field(8, description="Requests of each listener.")
    url: str | None = Field(
        None, description="A running server, for example http://127.0.0.1:8000; default in process."
    )
    key: SecretStr | None = Field(None, description="API key of the server, if it requires one.")
    model: str | None = Field(None, description="Model in process; default that of TTS_MODEL.")
    out: Path | None = Field(
        None,
        validation_alias=AliasChoices("o", "out"),
        description="JSON file for the figures and a description of the machine.",
    )

    def cli_cmd(self) -> None:
        """Measure, print a table and write the figures.

        Raises:
            CommandError: The flags or the model are invalid, or the server does not answer.
            CommandFailed: All requests failed.
        """
        if self.out is not None:
            check_folder(self.out, "out")
        if self.url is not None and self.model is not None:
            raise CommandError("model: the server has its own model; leave out --model or --url")
        if self.url is None and self.key is not None:
            raise CommandError("key: only a server takes a key; leave it out or add --url")
        logging.basicConfig(level=logging.CRITICAL)
        about, loads = asyncio.run(self._measure())
        print(", ".join(f"{name} {fact}" for name, fact in about.items()))
        print(_table(loads))
        for error in sorted({error for load in loads for error in load.errors}):
            print(f"failed: {error}")
        if self.out is not None:
            figures = {**about, "loads": [asdict(load) for load in loads]}
            write_file(self.out, (json.dumps(figures, indent=1) + "\n").encode(), "out")
        if all(load.failed == load.requests for load in loads):
            raise CommandFailed("bench: all requests failed")

    async def _measure(self) -> "tuple[dict[str, Any], list[LoadResult]]":
        """Return a description of what was measured, and the figures of each load."""
        from app.commands.listeners import listen_once, run_load
        from app.commands.sentences import SENTENCES, read_sentences

        loads = []
        async with self._speaker() as (about, listen):
            sentences = read_sentences(SENTENCES)
            await listen_once(listen, sentences[0], seed=0)  # warms up caches
            for at_once in self.at_once:
                loads.append(await run_load(listen, sentences, at_once, self.requests))
        return about, loads

    def _speaker(self) -> "AbstractAsyncContextManager[Speaker]":
        if self.url is not None:
            return _server(self.url, self.key)
        settings = Settings() if self.model is None else Settings(model=self.model)
        # Every listener may wait in the queue; none is refused.
        return _in_process(settings.model_copy(update={"max_queue": max(self.at_once)}))


@asynccontextmanager
async def _in_process(
    settings: Settings,
) -> "AsyncGenerator[Speaker, None]":
    """Enter an engine in this process."""
    from app.engine.errors import SpeechError
    from app.engine.job import SpeechJob
    from app.main import create_engine
    from samplers.knobs.params import SamplingParams

    async with create_engine(settings) as engine:
        try:
            await engine.wait_ready()
        except SpeechError as error:
            raise CommandError(f"model: {engine.status.error or error.message}") from error

        async def listen(text: str, seed: int) -> AsyncGenerator[float, None]:
            job = SpeechJob(f"bench-{seed}", text, SamplingParams(seed=seed))
            async for chunk in engine.submit(job):
                yield len(chunk.samples) / chunk.sample_rate_hz

        info = engine.info
        yield {**_machine(), "model": info.name, "device": info.device}, listen


@asynccontextmanager
async def _server(url: str, key: SecretStr | None) -> "AsyncGenerator[Speaker, None]":
    """Enter a client of a running server."""
    import httpx2

    headers = {} if key is None else {"Authorization": f"Bearer {key.get_secret_value()}"}
    limits = httpx2.Limits(max_connections=None)
    async with httpx2.AsyncClient(
        base_url=url, headers=headers, limits=limits, timeout=300, trust_env=False
    ) as client:
        try:
            ready = await client.get("/ready")
        except (httpx2.TransportError, httpx2.InvalidURL, httpx2.UnsupportedProtocol) as error:
            raise CommandError(f"url: {url}: {error or type(error).__name__}") from error
        if ready.status_code != 200:
            raise CommandError(f"url: {url}/ready answers {ready.status_code}")

        async def listen(text: str, seed: int) -> AsyncGenerator[float, None]:
            body = {"input": text, "seed": seed, "response_format": "pcm"}
            try:
                async with client.stream("POST", "/v1/audio/speech", json=body) as answer:
                    if answer.status_code != 200:
                        await answer.aread()
                        raise CommandFailed(f"{answer.status_code}: {answer.text[:200]}")
                    rate = int(answer.headers["x-sample-rate"]) * _BYTES_A_SAMPLE
                    async for part in answer.aiter_raw():
                        yield len(part) / rate
            except httpx2.TransportError as error:
                raise CommandFailed(str(error) or type(error).__name__) from error

        yield {"server": url, "model": ready.json()["model"]}, listen


def _machine() -> dict[str, Any]:
    """Return versions and hardware, and the load average, as other work distorts the figures."""
    import torch

    return {
        "valle-serve": VERSION,
        "torch": torch.__version__,
        "machine": platform.processor() or platform.machine(),
        "cpus": os.cpu_count(),
        "load": round(os.getloadavg()[0], 1),
    }


def _table(loads: "Sequence[LoadResult]") -> str:
    """Return the figures as a text table."""
    rows = [("at once", "failed", "sound s/s", "RTF p50", "p95", "first ms p50", "p95", "gaps")]
    for load in loads:
        rows.append((
            f"{load.at_once}",
            f"{load.failed} of {load.requests}",
            f"{load.audio_s_a_second:.2f}",
            _rounded(load.real_time_factor_p50, 2),
            _rounded(load.real_time_factor_p95, 2),
            _rounded(load.first_audio_p50_ms, 0),
            _rounded(load.first_audio_p95_ms, 0),
            f"{load.with_gaps}",
        ))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    )


def _rounded(figure: float | None, digits: int) -> str:
    return "-" if figure is None else f"{figure:.{digits}f}"
