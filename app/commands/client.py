"""A client of the service: of a running server, or of one in this process."""

import asyncio
import re
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import httpx2
from pydantic import BaseModel, Field, SecretStr

from app.commands.errors import CommandError, CommandFailed
from app.imports import gc_paused
from app.settings import Settings

if TYPE_CHECKING:
    from fastapi import FastAPI

    from app.engine.engine import SpeechEngine

_TIMEOUT_S: Final = 600
_HEADER_VALUE: Final = re.compile("[!-~]+")  # what a header can have, without spaces
_POLL_S: Final = 0.2
_NOT_SHARED: Final[Mapping[str, Any]] = {
    # Nobody else can send a request, so there is nobody to keep out or to leave room for.
    "api_keys": SecretStr(""),
    "api_keys_file": "",
    "rate_per_minute": 0,
    "max_concurrent_per_key": 0,
    "state": SecretStr("memory"),
    "wyoming_port": 0,
    "once_per_id": False,
}


class ServerOptions(BaseModel):
    """The flags that name a server; without them a command's service is in its own process."""

    url: str | None = Field(
        None,
        description="A running server, for example http://127.0.0.1:8000, whose model is already"
        " loaded; by default the model is loaded in this process.",
    )
    key: SecretStr | None = Field(None, description="API key of the server, if it requires one.")

    def check_server(self, model: str | None = None) -> None:
        """Raise CommandError if a flag, or a model, is for the other of server and process."""
        if self.url is None and self.key is not None:
            raise CommandError("key: only a server takes a key; leave it out or add --url")
        if self.key is not None and not _HEADER_VALUE.fullmatch(self.key.get_secret_value()):
            raise CommandError("key: it is empty, or has a character that no key has")
        if self.url is not None and model is not None:
            raise CommandError("model: the server has its own model; leave out --model or --url")

    @asynccontextmanager
    async def open_client(self, **settings: Any) -> AsyncIterator[httpx2.AsyncClient]:
        """Enter a client of the server, or of the service in this process with changed settings.

        Raises CommandError if the server does not answer, CommandFailed if the connection broke.
        """
        url = self.url
        key = self.key
        if url is None:
            async with open_service(**settings) as (client, _):
                yield client
            return
        headers = {} if key is None else {"Authorization": f"Bearer {key.get_secret_value()}"}
        try:
            async with httpx2.AsyncClient(
                base_url=url,
                headers=headers,
                timeout=_TIMEOUT_S,
                limits=httpx2.Limits(max_connections=None),
                trust_env=False,
            ) as client:
                yield client
        except httpx2.ConnectError as error:
            cure = "start one (valle-serve serve), or leave out --url"
            raise CommandError(f"url: no server answers at {url}: {error}; {cure}") from error
        except (httpx2.InvalidURL, httpx2.UnsupportedProtocol) as error:
            raise CommandError(f"url: {url}: {error or type(error).__name__}") from error
        except httpx2.TransportError as error:
            raise CommandFailed(f"url: {url}: {error or type(error).__name__}") from error


@asynccontextmanager
async def open_service(
    show: Callable[[str], None] = lambda _: None,
    engine: "Callable[[Settings], SpeechEngine] | None" = None,
    **settings: Any,
) -> "AsyncIterator[tuple[httpx2.AsyncClient, FastAPI]]":
    """Run the service in this process, with changed settings; yield a client and the application.

    ``show`` is called with what the service does until it is ready, then with an empty string.
    """
    loading = asyncio.create_task(asyncio.to_thread(_create_app, engine, settings))
    while not loading.done():
        show("loading")
        await asyncio.wait({loading}, timeout=_POLL_S)
    app = loading.result()
    from app.server import serve_privately

    async with serve_privately(app) as socket:
        await _until_ready(app, show)
        transport = httpx2.AsyncHTTPTransport(
            uds=str(socket), limits=httpx2.Limits(max_connections=None)
        )
        async with httpx2.AsyncClient(
            base_url="http://localhost", transport=transport, timeout=None
        ) as client:
            yield client, app


def _create_app(
    engine: "Callable[[Settings], SpeechEngine] | None", changed: dict[str, Any]
) -> "FastAPI":
    with gc_paused():
        from app.api.services import ClientLimits
        from app.engine.admission.quota import ClientQuota
        from app.main import create_app

    settings = Settings().model_copy(update={**_NOT_SHARED, **changed})
    limits = replace(ClientLimits.of(settings), whole_samples=ClientQuota(sys.maxsize))
    return create_app(settings, engine and engine(settings), limits=limits)


async def _until_ready(app: "FastAPI", show: Callable[[str], None]) -> None:
    from app.engine.errors import SpeechError
    from cpu.first_start import compilations

    engine: SpeechEngine = app.state.services.engine
    waiting = asyncio.create_task(engine.lifecycle.wait_ready())
    while not waiting.done():
        state = engine.status.state
        show("compiling, at the first start only" if compilations() else state)
        await asyncio.wait({waiting}, timeout=_POLL_S)
    show("")
    try:
        await waiting
    except SpeechError as error:
        raise CommandError(f"model: {engine.status.error or error.message}") from error


async def check_answer(answer: httpx2.Response) -> None:
    """Raise the error of an answer, if it is one: CommandError or, of a service, CommandFailed."""
    if not answer.is_error:
        return
    await answer.aread()
    try:
        error = answer.json()["error"]
        field = f"{error['param'] or 'speak'}: "
        message = field + error["message"].removeprefix(field)
    except (ValueError, KeyError, TypeError):
        message = f"url: {answer.request.url} answers {answer.status_code}"
    raise (CommandError if answer.status_code < 500 else CommandFailed)(message)
