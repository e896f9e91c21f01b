"""The application in this process answers as a server does, chunk by chunk."""

import asyncio

import httpx2
import pytest
from fastapi import FastAPI
from starlette.responses import StreamingResponse

from app.commands.client import ApplicationTransport

pytestmark = pytest.mark.anyio


def application(log: list[str]) -> FastAPI:
    app = FastAPI()

    @app.post("/{kind}")
    async def stream(kind: str) -> StreamingResponse:
        async def parts():
            try:
                for number in range(5):
                    log.append(f"sent {number}")
                    yield str(number).encode()
                    if kind == "breaks" and number == 2:
                        raise asyncio.IncompleteReadError(b"", 1)
            finally:
                log.append("ended")

        return StreamingResponse(parts())

    return app


def client(app: FastAPI) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(base_url="http://here", transport=ApplicationTransport(app))


async def test_a_response_streams_at_the_pace_of_its_reader() -> None:
    log: list[str] = []
    async with client(application(log)) as asking, asking.stream("POST", "/whole") as answer:
        parts = answer.aiter_raw()
        assert await anext(parts) == b"0"
        assert "sent 4" not in log
        assert b"".join([part async for part in parts]) == b"1234"
    assert log[-1] == "ended"


async def test_a_reader_that_leaves_cancels_the_work() -> None:
    log: list[str] = []
    async with client(application(log)) as asking, asking.stream("POST", "/whole") as answer:
        await anext(answer.aiter_raw())
    sent = [*log]
    for _ in range(10):
        await asyncio.sleep(0)
    assert "sent 4" not in sent
    assert set(log) - {"ended"} == set(sent) - {"ended"}


async def test_a_response_that_breaks_off_does_not_look_whole() -> None:
    async with client(application([])) as asking, asking.stream("POST", "/breaks") as answer:
        with pytest.raises((httpx2.RemoteProtocolError, asyncio.IncompleteReadError)):
            await answer.aread()


async def test_an_application_that_answers_nothing_is_a_broken_connection() -> None:
    async def silent(scope, receive, send) -> None:
        del scope, receive, send

    async with httpx2.AsyncClient(
        base_url="http://here", transport=ApplicationTransport(silent)
    ) as asking:
        with pytest.raises(httpx2.RemoteProtocolError):
            await asking.get("/")
