"""Who may open a WebSocket."""

import json
import logging

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from app.api.live.valle import PROTOCOL
from tests.app.tools.live_client import live, serving, url_of
from tests.app.tools.serving import until


def refusal(client: httpx.Client, **options) -> tuple[int, str]:
    with pytest.raises(InvalidStatus) as refused:
        connect(url_of(client), **options)
    answer = refused.value.response
    return answer.status_code, json.loads(bytes(answer.body or b""))["error"]["code"]


def test_subprotocols(client) -> None:
    assert refusal(client, subprotocols=["other"]) == (422, "subprotocol")
    with live(client, subprotocols=["valle.key.secret", PROTOCOL]) as session:
        assert session.connection.subprotocol == PROTOCOL
    with live(client, subprotocols=None) as session:
        assert session.connection.subprotocol is None


def test_there_are_only_so_many_sessions() -> None:
    with serving(max_sessions=1) as (client, _):
        with live(client):
            assert refusal(client) == (503, "too_many_sessions")
        until(lambda: _opens(client))


def _opens(client: httpx.Client) -> bool:
    try:
        with live(client):
            return True
    except InvalidStatus:
        return False


@pytest.mark.parametrize("path", ["/v1/realtime", "/", "/v1/audio/speech/stream/", "/v1/voices"])
def test_a_path_that_there_is_not_is_404_with_the_body_of_errors(client, path, caplog) -> None:
    with caplog.at_level(logging.INFO):
        with pytest.raises(InvalidStatus) as refused:
            connect(url_of(client, path))
        answer = refused.value.response
        assert answer.status_code == 404
        error = json.loads(bytes(answer.body or b""))["error"]
        assert error["code"] == "not_found"
        assert path in error["message"]
        assert not [one for one in caplog.records if one.levelno >= logging.ERROR]
        until(lambda: any(f"WS {path} 404" in one.getMessage() for one in caplog.records))
