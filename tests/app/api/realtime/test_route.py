"""Who may open a WebSocket."""

import logging
from contextlib import ExitStack

import pytest
from websockets.exceptions import InvalidStatus

from app.api.realtime.valle import PROTOCOL
from tests.app.tools.live_client import live, refused, serving
from tests.app.tools.serving import until


def test_an_unknown_subprotocol_is_refused_and_ours_or_none_accepted(client) -> None:
    status, error = refused(client, subprotocols=["other"])
    assert (status, error["code"]) == (422, "subprotocol")
    with live(client, subprotocols=["valle.key.secret", PROTOCOL]) as session:
        assert session.connection.subprotocol == PROTOCOL
    with live(client, subprotocols=None) as session:
        assert session.connection.subprotocol is None


def test_there_are_only_so_many_sessions_of_which_one_address_has_its_share() -> None:
    with serving(max_sessions=5) as (client, _):
        with ExitStack() as held:
            for _ in range(4):
                held.enter_context(live(client))
            status, error = refused(client)
            assert (status, error["code"]) == (503, "too_many_sessions")
            with live(client, source_address=("127.0.0.2", 0)) as other:
                assert other.say("Hi.")["finish_reason"] == "stop"
                assert refused(client, source_address=("127.0.0.3", 0))[0] == 503

        def opens() -> bool:
            try:
                with live(client):
                    return True
            except InvalidStatus:
                return False

        until(opens)


@pytest.mark.parametrize("path", ["/v1/realtime", "/", "/v1/audio/speech/stream/", "/v1/voices"])
def test_a_path_that_there_is_not_is_404_with_the_body_of_errors(client, path, caplog) -> None:
    with caplog.at_level(logging.INFO):
        status, error = refused(client, path)
        assert (status, error["code"]) == (404, "not_found")
        assert path in error["message"]
        assert not [one for one in caplog.records if one.levelno >= logging.ERROR]
        until(lambda: any(f"WS {path} 404" in one.getMessage() for one in caplog.records))
