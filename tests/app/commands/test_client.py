"""The service in this process answers a command at its pace, and is seen to break off."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx2
import pytest
from fastapi import FastAPI
from starlette.responses import StreamingResponse

from app.commands.client import check_answer
from app.commands.errors import CommandError
from app.server import serve_privately

pytestmark = pytest.mark.anyio

PART_BYTES = 2**20  # more than the socket and both of its ends hold


def application(log: list[str]) -> FastAPI:
    app = FastAPI()

    @app.post("/{kind}")
    async def stream(kind: str) -> StreamingResponse:
        async def parts():
            try:
                for number in range(1000 if kind == "long" else 5):
                    await asyncio.sleep(0)
                    log.append(f"sent {number}")
                    yield bytes([number % 5]) * PART_BYTES
                    if kind == "breaks" and number == 2:
                        raise asyncio.IncompleteReadError(b"", 1)
            finally:
                log.append("ended")

        return StreamingResponse(parts())

    return app


@asynccontextmanager
async def answered(log: list[str], path: str) -> AsyncIterator[httpx2.Response]:
    async with serve_privately(application(log)) as socket:
        transport = httpx2.AsyncHTTPTransport(uds=str(socket))
        async with (
            httpx2.AsyncClient(base_url="http://here", transport=transport) as asking,
            asking.stream("POST", path) as answer,
        ):
            yield answer


async def test_a_response_streams_at_the_pace_of_its_reader() -> None:
    log: list[str] = []
    async with answered(log, "/whole") as answer:
        parts = answer.aiter_raw()
        first = await anext(parts)
        await asyncio.sleep(0.1)
        assert "sent 4" not in log
        whole = first + b"".join([part async for part in parts])
        assert whole == b"".join(bytes([number]) * PART_BYTES for number in range(5))
    assert log[-1] == "ended"


async def test_a_reader_that_leaves_ends_the_work() -> None:
    log: list[str] = []
    async with answered(log, "/long") as answer:
        await anext(answer.aiter_raw())
    assert "sent 999" not in log
    assert log[-1] == "ended"


async def test_a_response_that_breaks_off_does_not_look_whole() -> None:
    async with answered([], "/breaks") as answer:
        with pytest.raises(httpx2.RemoteProtocolError):
            await answer.aread()


async def test_a_service_is_reached_whatever_folder_temporary_files_are_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    far = tmp_path / ("a" * 120)
    far.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(far))
    async with answered([], "/whole") as answer:
        assert len(await answer.aread()) == 5 * PART_BYTES


@pytest.mark.parametrize("message", ["top_a: there is no such field", "there is no such field"])
async def test_a_refusal_names_its_field_once(message: str) -> None:
    request = httpx2.Request("POST", "http://localhost/tts")
    error = {"error": {"message": message, "param": "top_a", "type": "", "code": ""}}
    with pytest.raises(CommandError, match=r"^top_a: there is no such field$"):
        await check_answer(httpx2.Response(422, json=error, request=request))
