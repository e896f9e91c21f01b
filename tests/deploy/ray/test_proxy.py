import pytest

from deploy.ray.proxy import OneRequestId

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("kind", ["http.response.start", "websocket.accept"])
async def test_the_id_of_the_service_is_the_only_one(kind) -> None:
    async def app(scope, receive, send) -> None:
        headers = [(b"x-request-id", b"ours"), (b"x-seed", b"1"), (b"X-Request-Id", b"Ray's")]
        await send({"type": kind, "headers": headers})
        await send({"type": "http.response.body", "body": b"speech"})

    sent = []

    async def send(message) -> None:
        sent.append(message)

    async def receive():
        raise AssertionError("nothing is asked")

    await OneRequestId(app)({"type": "http"}, receive, send)
    assert sorted(sent[0]["headers"]) == [(b"x-request-id", b"ours"), (b"x-seed", b"1")]
    assert sent[1]["body"] == b"speech"
