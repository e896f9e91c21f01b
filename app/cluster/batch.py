"""Many speech requests from a file, spoken by several workers.

A line of the input is as in OpenAI's batches: ``{"custom_id", "method", "url", "body"}``, the url
being `/v1/audio/speech` or `/tts`. The output folder has, of each line, an audio file and a report;
the report is written last, and a line that has one is done. So a batch that was interrupted
continues where it was, and a line whose worker died is given to another. A line without a seed gets
one that follows from its id: it is the same speech whoever speaks it, and however often.
"""

import asyncio
import hashlib
import json
import logging
import re
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, Protocol
from uuid import uuid4

import httpx2
from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError

from app.settings import Settings
from app.storage.files import write_atomically

log = logging.getLogger(__name__)

_ATTEMPTS: Final = 3
_BUSY: Final = frozenset({429, 503})
_FIRST_FAILURE: Final = 500
_SLUG: Final = re.compile(r"[^A-Za-z0-9_-]+")
_SLUG_CHARS: Final = 60


class BatchError(ValueError):
    """The input cannot be a batch; the message names the line."""


class Line(BaseModel):
    """A line of the input.

    Attributes:
        number: Of the line, from 1.
    """

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


def read_lines(path: Path) -> list[Line]:
    """Return the lines of a batch.

    Raises:
        BatchError: A line is not valid, or two have the same id.
    """
    lines: list[Line] = []
    known: set[str] = set()
    for number, raw in enumerate(path.read_text("utf-8").splitlines(), 1):
        if not raw.strip():
            continue
        try:
            line = Line.model_validate_json(raw).model_copy(update={"number": number})
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            raise BatchError(f"line {number}: {where}: {first['msg']}") from error
        if line.custom_id in known:
            raise BatchError(f"line {number}: the custom_id {line.custom_id!r} is there twice")
        known.add(line.custom_id)
        lines.append(line)
    return lines


@dataclass(frozen=True)
class Spoken:
    """The answer of a line.

    Attributes:
        status: HTTP status.
        headers: Of the answer.
        content: The audio, or the body of an error.
    """

    status: int
    headers: dict[str, str]
    content: bytes


class Speaker:
    """The service in this process, asked without a network."""

    def __init__(self, engine: str = "") -> None:
        self._engine = engine
        self._starting = asyncio.Lock()
        self._client: httpx2.AsyncClient | None = None
        self._open: Any = None

    async def speak(self, line: Line) -> Spoken:
        """Speak a line; one that fails for no fault of its own is tried again."""
        client = await self._started()
        attempt = 1
        while True:
            answer = await post_when_free(client, line.url, line.request)
            if answer.status_code < _FIRST_FAILURE or attempt >= _ATTEMPTS:
                return Spoken(answer.status_code, dict(answer.headers), answer.content)
            attempt += 1

    async def _started(self) -> httpx2.AsyncClient:
        async with self._starting:
            if self._client is None:
                self._open = service(self._engine)
                self._client = await self._open.__aenter__()
            return self._client

    async def close(self) -> None:
        """Stop the service."""
        if self._open is not None:
            await self._open.__aexit__(None, None, None)


async def post_when_free(
    client: httpx2.AsyncClient, url: str, body: dict[str, Any]
) -> httpx2.Response:
    """Post a request, again and again while the service says that it is busy."""
    while (answer := await client.post(url, json=body)).status_code in _BUSY:
        await asyncio.sleep(float(answer.headers.get("retry-after", 1)))
    return answer


@asynccontextmanager
async def service(engine: str = "", keep: int = 0) -> AsyncIterator[httpx2.AsyncClient]:
    """Run the service in this process, and give a client of it.

    Args:
        engine: Import path of another engine.
        keep: How many recent speeches it keeps.
    """
    from app.cluster.engines import load_engine
    from app.main import create_app

    # Nobody else can ask, so there is nobody to keep out.
    free = {"api_keys": SecretStr(""), "api_keys_file": "", "rate_per_minute": 0}
    settings = Settings().model_copy(update=free | {"max_concurrent_per_key": 0, "keep": keep})
    app = create_app(settings, load_engine(engine, settings))
    async with app.router.lifespan_context(app):
        await app.state.engine.wait_ready()
        transport = httpx2.ASGITransport(app)
        base_url = "http://localhost"
        async with httpx2.AsyncClient(
            transport=transport, base_url=base_url, timeout=None
        ) as client:
            yield client


class Output:
    """The folder of a batch's output."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._reports = folder / "reports"
        for one in (folder / "audio", self._reports):
            one.mkdir(parents=True, exist_ok=True)

    def has(self, line: Line) -> bool:
        """Return whether a line is done."""
        return (self._reports / f"{line.name}.json").exists()

    def write(self, line: Line, spoken: Spoken) -> None:
        """Write the files of a line, the report last."""
        report: dict[str, Any] = {
            "id": f"batch_req_{uuid4().hex}",
            "custom_id": line.custom_id,
            "response": None,
            "error": None,
        }
        headers = spoken.headers
        answer = {"status_code": spoken.status, "request_id": headers.get("x-request-id", "")}
        if spoken.status == httpx2.codes.OK:
            kind = headers["content-type"].partition(";")[0].removeprefix("audio/")
            path = self.folder / "audio" / f"{line.name}.{_SUFFIXES.get(kind, kind)}"
            write_atomically(path, spoken.content)
            body: Any = {
                "file": f"audio/{path.name}",
                "sha256": hashlib.sha256(spoken.content).hexdigest(),
                **{name: headers[name] for name in sorted(headers) if name.startswith("x-")},
            }
        else:
            body = json.loads(spoken.content)
            report["error"] = body.get("error")
        report["response"] = answer | {"body": body}
        write_atomically(self._reports / f"{line.name}.json", json.dumps(report).encode())

    def finish(self, lines: Sequence[Line]) -> tuple[int, int]:
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


_SUFFIXES: Final = {"mpeg": "mp3", "ogg": "opus"}


class Workers(Protocol):
    """What speaks lines, several at a time."""

    def run(self, lines: Sequence[Line]) -> Iterator[tuple[Line, Spoken]]:
        """Yield each line with its answer, in any order."""


class OneProcess:
    """The worker in this process."""

    def __init__(self, engine: str = "", at_once: int = 8) -> None:
        self._engine, self._at_once = engine, at_once

    def run(self, lines: Sequence[Line]) -> Iterator[tuple[Line, Spoken]]:
        """Yield each line with its answer."""
        with asyncio.Runner() as runner:
            speaker = Speaker(self._engine)
            waiting = deque(lines)
            working: dict[asyncio.Task[Spoken], Line] = {}

            async def some() -> list[tuple[Line, Spoken]]:
                while waiting and len(working) < self._at_once:
                    line = waiting.popleft()
                    working[asyncio.create_task(speaker.speak(line))] = line
                done, _ = await asyncio.wait(working, return_when=asyncio.FIRST_COMPLETED)
                return [(working.pop(task), task.result()) for task in done]

            while waiting or working:
                yield from runner.run(some())
            runner.run(speaker.close())


def run_batch(
    lines: Sequence[Line],
    output: Output,
    workers: Workers,
    on_progress: Callable[[int, int], None] = lambda _done, _of: None,
) -> tuple[int, int]:
    """Speak the lines that are not done; return how many succeeded and failed.

    Args:
        output: Where answers are written.
        workers: Who speaks.
        on_progress: Called with the number of lines done, and of all, after each.
    """
    missing = [line for line in lines if not output.has(line)]
    done = len(lines) - len(missing)
    on_progress(done, len(lines))
    for line, spoken in workers.run(missing):
        output.write(line, spoken)
        done += 1
        on_progress(done, len(lines))
    return output.finish(lines)
