"""`valle-serve bench`: measure the speed of this machine or of a running server."""

import asyncio
import logging
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict
from itertools import cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import AliasChoices, Field, PositiveInt
from pydantic_core import to_json

from app.commands.client import ServerOptions
from app.commands.errors import CommandError, CommandFailed
from app.commands.output import check_out, write_file
from app.version import VERSION

if TYPE_CHECKING:
    from app.commands.bench.listeners import Figures


class Bench(ServerOptions):
    """Measure throughput and latency with listeners that each request one sentence after the other.

    Other work on the machine distorts the figures; so does this command, by some percent, if it
    runs on the server's machine.
    """

    at_once: list[PositiveInt] = Field(
        [1, 4], description="Concurrent listeners; the flag may be repeated."
    )
    requests: PositiveInt = Field(8, description="Requests of each listener.")
    model: str | None = Field(None, description="Model in process; default that of TTS_MODEL.")
    out: Path | None = Field(
        None,
        validation_alias=AliasChoices("o", "out"),
        description="JSON file for the figures and a description of the machine.",
    )

    def cli_cmd(self) -> None:
        """Measure, print a table and write the figures."""
        if self.out is not None:
            check_out(self.out, "out")
        self.check_server(self.model)
        logging.basicConfig(level=logging.CRITICAL)
        about, loads = asyncio.run(self._measure())
        print(", ".join(f"{name} {fact}" for name, fact in about.items()))
        print(_table(loads))
        for error in sorted({error for load in loads for error in load.errors}):
            print(f"failed: {error}")
        if self.out is not None:
            figures = {**about, "loads": [asdict(load) for load in loads]}
            write_file(self.out, to_json(figures, indent=1, inf_nan_mode="null") + b"\n", "out")
        if all(load.failed == load.requests for load in loads):
            raise CommandFailed("bench: all requests failed")

    async def _measure(self) -> "tuple[dict[str, Any], list[Figures]]":
        """Return a description of what was measured, and the figures of each load."""
        from app.commands.bench.listeners import closed_loop, receive
        from app.commands.sentences import SENTENCES, read_sentences

        loads = []
        settings: dict[str, Any] = {"max_queue": max(self.at_once)}  # none is refused
        if self.model is not None:
            settings["model"] = self.model
        async with self.open_client(**settings) as client:
            ready = await client.get("/ready")
            health = await client.get("/health")
            if ready.is_error:
                raise CommandError(f"url: {self.url}/ready answers {ready.status_code}")
            about = {"server": self.url} if self.url else {**_machine(), **health.json()}
            about = {name: about[name] for name in (*_ABOUT, "server") if name in about}
            about["model"] = ready.json()["model"]
            sentences = read_sentences(SENTENCES)
            await receive(client, sentences[0], seed=0)  # warms up caches
            for at_once in self.at_once:
                texts = [*islice(cycle(sentences), at_once * self.requests)]
                loads.append(await closed_loop(client, at_once, texts))
        return about, loads


_ABOUT = ("valle-serve", "torch", "machine", "cpus", "load", "device")


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


def _table(loads: "Sequence[Figures]") -> str:
    """Return the figures as a text table."""
    rows: list[tuple[str, ...]] = [
        ("load", "failed", "sound s/s", "RTF p50", "p95", "first ms p50", "p95", "gaps")
    ]
    for load in loads:
        rows.append((
            load.load,
            f"{load.failed} of {load.requests}",
            f"{load.audio_a_second:.2f}",
            *(f"{factor:.2f}" for factor in (load.rtf_p50, load.rtf_p95)),
            *(f"{first_ms:.0f}" for first_ms in (load.first_p50_ms, load.first_p95_ms)),
            f"{load.gaps}",
        ))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
        for row in rows
    )
