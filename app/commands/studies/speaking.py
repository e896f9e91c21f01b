"""The takes of a study spoken by a server or in this process, judged, and kept in a file."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx2
import numpy as np

from app.audio.containers import wav_header
from app.cluster.batch import post_when_free, service
from app.commands.errors import CommandError, CommandFailed
from app.commands.studies.grid import StudyTake
from app.commands.studies.measures import measure

_TIMEOUT_S: Final = 600

Row = dict[str, Any]
"""Of a take: `key`, `model`, `codes`, `finish`, and `measures` by their names."""


class TakesFile:
    """The JSON Lines file of the takes that are done, in the order in which they were.

    Args:
        path: Takes of other settings, or of a model of another name, may stand in it too.
        model: Name of the model.
    """

    def __init__(self, path: Path, model: str) -> None:
        self._path, self._rows = path, dict[str, Row]()
        lines = path.read_text("utf-8").splitlines(keepends=True) if path.exists() else []
        if lines and not lines[-1].endswith("\n"):  # the run was ended while it was written
            path.write_text("".join(lines[:-1]), "utf-8")
            lines.pop()
        for row in map(json.loads, lines):
            if row["model"] == model:
                self._rows[row["key"]] = row

    def add(self, row: Row) -> None:
        """Append a take."""
        self._rows[row["key"]] = row
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def find(self, take: StudyTake) -> Row | None:
        """Return the row of a take, or None."""
        return self._rows.get(take.key)


class JudgeCommand:
    """A command that judges takes: of a JSON object a line, `text` and `sound`, it gives numbers.

    Args:
        command: In words of a shell; it reads lines from stdin and writes a JSON object for each.
    """

    def __init__(self, command: str) -> None:
        self._command, self._turn = command, asyncio.Lock()
        self._process: asyncio.subprocess.Process | None = None

    async def judge(self, text: str, sound: Path) -> dict[str, float]:
        """Return what the command says of a take.

        Raises:
            CommandFailed: It ended, or what it wrote are no numbers.
        """
        async with self._turn:
            if self._process is None:
                pipe = asyncio.subprocess.PIPE
                self._process = await asyncio.create_subprocess_shell(
                    self._command, stdin=pipe, stdout=pipe
                )
            process = self._process
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(json.dumps({"text": text, "sound": str(sound)}).encode() + b"\n")
            await process.stdin.drain()
            line = await process.stdout.readline()
        try:
            return {str(name): float(value) for name, value in json.loads(line).items()}
        except (ValueError, AttributeError, TypeError) as error:
            raise CommandFailed(f"judge: {self._command!r} wrote {line!r}") from error

    async def close(self) -> None:
        """End the command."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            await self._process.wait()


@dataclass(frozen=True)
class StudyServer:
    """Who speaks the takes.

    Attributes:
        url: Base URL of a running server; None runs the service in this process.
        key: API key; empty for none.
        engine: Import path of another engine, in this process.
        at_once: How many takes are spoken at a time.
    """

    url: str | None = None
    key: str = ""
    engine: str = ""
    at_once: int = 8

    @asynccontextmanager
    async def client(self) -> AsyncIterator[httpx2.AsyncClient]:
        """Enter a client.

        Raises:
            CommandError: The server does not answer.
        """
        if self.url is None:
            async with service(self.engine, keep=4 * self.at_once) as client:
                yield client
            return
        headers = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        try:
            async with httpx2.AsyncClient(
                base_url=self.url, headers=headers, timeout=_TIMEOUT_S, trust_env=False
            ) as client:
                yield client
        except (httpx2.TransportError, httpx2.InvalidURL) as error:
            raise CommandError(f"url: {self.url}: {error or type(error).__name__}") from error


async def speak_takes(
    takes: Sequence[StudyTake],
    server: StudyServer,
    folder: Path,
    judges: Sequence[str],
    on_progress: Callable[[int, int], object],
) -> list[Row]:
    """Return the rows of all takes, in order; those that are not in the folder yet are spoken.

    Args:
        folder: Has `takes.jsonl` and, while judges are asked, the sounds.
        judges: Commands, see `JudgeCommand`.
        on_progress: Called with how many are done, and of how many, after each.
    """
    commands = [JudgeCommand(one) for one in judges]
    async with server.client() as client:
        ready = (await client.get("/ready")).json()
        file = TakesFile(folder / "takes.jsonl", ready["model"])
        missing = [take for take in takes if file.find(take) is None]
        done = len(takes) - len(missing)
        on_progress(done, len(takes))
        turns, times = asyncio.Semaphore(server.at_once), ready["word_times"]

        async def speak(take: StudyTake) -> None:
            nonlocal done
            async with turns:
                row = await _spoken(client, take, folder, commands, times=times)
            file.add({"key": take.key, "model": ready["model"], **row})
            done += 1
            on_progress(done, len(takes))

        try:
            async with asyncio.TaskGroup() as group:
                for take in missing:
                    group.create_task(speak(take))
        except* CommandError as errors:
            raise errors.exceptions[0] from None
        finally:
            for command in commands:
                await command.close()
    return [row for take in takes if (row := file.find(take)) is not None]


async def _spoken(
    client: httpx2.AsyncClient,
    take: StudyTake,
    folder: Path,
    judges: Sequence[JudgeCommand],
    *,
    times: bool,
) -> Row:
    """Speak and judge a take."""
    form = {"response_format": "pcm", "stream": False, "trace": True, "priority": "background"}
    body = take.body | form | ({"timestamps": "word"} if times else {})
    answer = await post_when_free(client, "/v1/audio/speech", body)
    if answer.is_error:
        raise CommandError(f"{take.key}: {answer.json()['error']['message']}")
    rate_hz = int(answer.headers["x-sample-rate"])
    report = (await client.get(f"/v1/audio/speech/{answer.headers['x-request-id']}")).json()
    pcm = np.frombuffer(answer.content, "<i2")
    measures = measure(report, (pcm / 32768.0).astype(np.float32), rate_hz)
    if judges:
        sound = folder / f"{answer.headers['x-request-id']}.wav"
        sound.write_bytes(wav_header(rate_hz, len(answer.content)) + answer.content)
        for judge in judges:
            measures |= await judge.judge(take.text, sound)
        sound.unlink()
    return {
        "codes": answer.headers["x-codes-sha256"],
        "finish": report["finish_reason"],
        "idle": answer.headers.get("x-ignored", ""),
        "measures": measures,
    }


def table_of(takes: Sequence[StudyTake], rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return a flat row for each take: what varies, text, voice, seed, codes and measures."""
    knobs = dict.fromkeys(name for take in takes for name in take.setting)
    measures = dict.fromkeys(name for row in rows for name in row["measures"])
    return [
        {
            **{name: take.setting.get(name) for name in knobs},
            "text": take.text,
            "voice": take.voice,
            "seed": take.seed,
            "codes_sha256": row["codes"],
            "finish": row["finish"],
            "ignored": row["idle"],
            **{name: row["measures"].get(name) for name in measures},
        }
        for take, row in zip(takes, rows, strict=True)
    ]
