"""`valle-serve batch`: speak the requests of a file.

A line of the input is as in OpenAI's batches. The report of a line is written last, and a line that
has one is done, so that an interrupted batch continues where it was. A line without a seed gets one
from its id: it is the same speech wherever and however often it is spoken.
"""

import asyncio
import hashlib
import json
import re
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal
from uuid import uuid4

import httpx2
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_settings import CliPositionalArg

from app.commands.client import ServerOptions
from app.commands.errors import CommandError, CommandFailed
from app.storage.files import write_atomically
from models.config import first_problem

_ATTEMPTS: Final = 3
_BUSY: Final = frozenset({429, 503})
_FIRST_FAILURE: Final = 500
_SLUG: Final = re.compile(r"[^A-Za-z0-9_-]+")
_SLUG_CHARS: Final = 60
_SUFFIXES: Final = {"mpeg": "mp3", "ogg": "opus"}


class BatchLine(BaseModel):
    """A line of the input; ``number`` counts from 1."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    custom_id: str = Field(min_length=1, max_length=200)
    method: Literal["POST"] = "POST"
    url: Literal["/v1/audio/speech", "/tts"] = "/v1/audio/speech"
    body: dict[str, Any]
    number: int = 0

    @property
    def request(self) -> dict[str, Any]:
        """The body of the request: not streamed, with a seed."""
        digest = hashlib.sha256(self.custom_id.encode()).digest()
        seed = int.from_bytes(digest[:4], "big") >> 1
        return {"seed": seed} | self.body | {"stream": False}

    @property
    def name(self) -> str:
        """The name of the files of the line, without a suffix."""
        return f"{self.number:06d}-{_SLUG.sub('_', self.custom_id)[:_SLUG_CHARS]}"


class BatchCommand(ServerOptions):
    """Speak the requests of a file: a JSON object a line, as for OpenAI's batches.

    What was done is kept: the same command continues an interrupted batch. The model and the rest
    are settings, TTS_MODEL and so on, or those of a server.
    """

    file: CliPositionalArg[Path] = Field(
        description='Lines of {"custom_id": ..., "url": "/v1/audio/speech", "body": {...}}.'
    )
    out: CliPositionalArg[Path] = Field(description="Folder of the audio files and reports.")
    at_once: int = Field(8, ge=1, le=1024, description="Lines that are spoken at a time.")

    def cli_cmd(self) -> None:
        """Speak what is missing, with a line of progress on stderr."""
        self.check_server()
        try:
            lines = read_lines(self.file)
            output = Output(self.out)
        except (CommandError, OSError, UnicodeDecodeError) as error:
            raise CommandError(f"{self.file}: {error}") from error
        asyncio.run(self._run(lines, output))
        good, bad = output.finish(lines)
        print(json.dumps({"completed": good, "failed": bad, "total": len(lines)}))
        if bad:
            raise CommandFailed

    async def _run(self, lines: Sequence[BatchLine], output: "Output") -> None:
        missing = deque(line for line in lines if not output.has(line))
        self._show(len(lines) - len(missing), len(lines))
        if not missing:
            return
        async with self.open_client(keep=0) as client:
            working = set[asyncio.Task[None]]()
            while missing or working:
                while missing and len(working) < self.at_once:
                    working.add(asyncio.create_task(speak_line(client, missing.popleft(), output)))
                done, working = await asyncio.wait(working, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
                    self._show(len(lines) - len(missing) - len(working), len(lines))

    def _show(self, done: int, of: int) -> None:
        progress = json.dumps({"completed": done, "total": of})
        (self.out / "progress.json").write_text(progress + "\n", "utf-8")
        end = "\r" if sys.stderr.isatty() and done < of else "\n"
        print(f"{done} of {of} lines", end=end, file=sys.stderr, flush=True)


def read_lines(path: Path) -> list[BatchLine]:
    """Return the lines of a batch; raises CommandError if one is not valid, or two share an id."""
    lines: list[BatchLine] = []
    known: set[str] = set()
    for number, raw in enumerate(path.read_text("utf-8-sig").splitlines(), 1):
        if not raw.strip():
            continue
        try:
            line = BatchLine.model_validate_json(raw).model_copy(update={"number": number})
        except ValidationError as error:
            raise CommandError(f"line {number}: {first_problem(error)}") from error
        if line.custom_id in known:
            raise CommandError(f"line {number}: the custom_id {line.custom_id!r} is there twice")
        known.add(line.custom_id)
        lines.append(line)
    return lines


async def post_when_free(
    client: httpx2.AsyncClient, url: str, body: Mapping[str, Any]
) -> httpx2.Response:
    """Post a request, again and again while the service says that it is busy."""
    while (answer := await client.post(url, json=body)).status_code in _BUSY:
        await asyncio.sleep(float(answer.headers.get("retry-after", 1)))
    return answer


async def speak_line(client: httpx2.AsyncClient, line: BatchLine, output: "Output") -> None:
    """Speak a line and write its files; one that fails through no fault of its own is tried again.

    Raises TransportError if the connection broke at each attempt.
    """
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            answer = await post_when_free(client, line.url, line.request)
        except httpx2.TransportError:
            if attempt == _ATTEMPTS:
                raise
            await asyncio.sleep(attempt)
            continue
        if answer.status_code < _FIRST_FAILURE or attempt == _ATTEMPTS:
            output.write(line, answer)
            return


class Output:
    """The folder of a batch's output."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._reports = folder / "reports"
        for one in (folder / "audio", self._reports):
            one.mkdir(parents=True, exist_ok=True)

    def has(self, line: BatchLine) -> bool:
        """Return whether a line is done."""
        return (self._reports / f"{line.name}.json").exists()

    def write(self, line: BatchLine, answer: httpx2.Response) -> None:
        """Write the files of a line, the report last."""
        report: dict[str, Any] = {
            "id": f"batch_req_{uuid4().hex}",
            "custom_id": line.custom_id,
            "response": None,
            "error": None,
        }
        headers = answer.headers
        if answer.status_code == httpx2.codes.OK:
            kind = headers["content-type"].partition(";")[0].removeprefix("audio/")
            path = self.folder / "audio" / f"{line.name}.{_SUFFIXES.get(kind, kind)}"
            write_atomically(path, answer.content)
            body: Any = {
                "file": f"audio/{path.name}",
                "sha256": hashlib.sha256(answer.content).hexdigest(),
                **{name: headers[name] for name in sorted(headers) if name.startswith("x-")},
            }
        else:
            body = answer.json()
            report["error"] = body.get("error")
        report["response"] = {
            "status_code": answer.status_code,
            "request_id": headers.get("x-request-id", ""),
            "body": body,
        }
        write_atomically(self._reports / f"{line.name}.json", json.dumps(report).encode())

    def finish(self, lines: Sequence[BatchLine]) -> tuple[int, int]:
        """Write `output.jsonl` and `errors.jsonl`; return how many lines each has."""
        good: list[str] = []
        bad: list[str] = []
        for line in lines:
            raw = (self._reports / f"{line.name}.json").read_text("utf-8")
            (bad if json.loads(raw)["error"] else good).append(raw)
        for name, reports in (("output", good), ("errors", bad)):
            write_atomically(
                self.folder / f"{name}.jsonl", "".join(f"{one}\n" for one in reports).encode()
            )
        return len(good), len(bad)
