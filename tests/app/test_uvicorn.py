"""What `app.connections` and `app.server` override in uvicorn is still there and still called.

uvicorn documents none of it, so `pyproject.toml` allows one minor version: whoever raises that
reads here first what moved.
"""

import asyncio
import inspect
import tomllib
from typing import Any

import uvicorn
from packaging.requirements import Requirement
from uvicorn.protocols.http.h11_impl import H11Protocol

from app.connections import BoundedConnection
from app.server import DrainingServer
from tests.conftest import ROOT


def parameters(method: object) -> list[str]:
    assert callable(method)
    return list(inspect.signature(method).parameters)


def test_what_is_overridden_exists_with_the_same_arguments() -> None:
    for ours, theirs in ((BoundedConnection, H11Protocol), (DrainingServer, uvicorn.Server)):
        inherited = {
            name for name in vars(ours) if name in vars(theirs) and callable(vars(theirs)[name])
        }
        for name in inherited - {"__init__"}:
            assert parameters(getattr(ours, name)) == parameters(getattr(theirs, name)), name
    assert {"connection_made", "data_received", "connection_lost"} <= vars(H11Protocol).keys()
    assert {"startup", "handle_exit", "on_tick"} <= vars(uvicorn.Server).keys()
    assert inspect.iscoroutinefunction(uvicorn.Server.on_tick)


def test_a_connection_has_what_ours_reads() -> None:
    async def app(scope: object, receive: object, send: object) -> None: ...

    async def made() -> H11Protocol:
        config = uvicorn.Config(app, http=BoundedConnection)
        config.load()
        state = uvicorn.server.ServerState()
        made: Any = config.http_protocol_class
        connection: H11Protocol = made(config=config, server_state=state, app_state={})
        return connection

    connection = asyncio.run(made())
    assert isinstance(connection, BoundedConnection)
    for name in ("conn", "connections", "client", "transport", "loop"):
        assert hasattr(connection, name), name


def test_the_version_is_bounded() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    (wanted,) = [one for one in map(Requirement, project["dependencies"]) if one.name == "uvicorn"]
    assert wanted.specifier.contains(uvicorn.__version__)
    major, minor = map(int, uvicorn.__version__.split(".")[:2])
    assert not wanted.specifier.contains(f"{major}.{minor + 1}.0")
