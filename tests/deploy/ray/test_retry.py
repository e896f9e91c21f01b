"""A replica that ends before it answers, as Ray's proxy shows it: the application returns."""

import json

import pytest

from deploy.ray.proxy import ATTEMPTS, KEPT_BYTES, RetryUnanswered

pytestmark = pytest.mark.anyio
PARTS = [
    {"type": "http.request", "body": b'{"input": ', "more_body": True},
    {"type": "http.request", "body": b'"Hi."}', "more_body": False},
]
ANSWER = [
    {"type": "http.response.start", "status": 200, "headers": []},
    {"type": "http.response.body", "body": b"speech"},
]
DENIAL: dict[str, dict[str, str]] = {"websocket.http.response": {}}


class Replicas:
    """An application whose first attempts end; each reads `read` messages before."""

    def __init__(self, lost: int, read: int = 2, answer=ANSWER) -> None:
        self.lost, self.read, self.answer = lost, read, answer
        self.heard: list[list[dict[str, object]]] = []

    async def __call__(self, scope, receive, send) -> None:
        scope["headers"].append((b"x-request-id", b"Ray's"))
        self.scope = scope
        self.heard.append([])
        for _ in range(self.read):
            self.heard[-1].append(await receive())
        if len(self.heard) > self.lost:
            for message in self.answer:
                await send(message)


async def ask(replicas, messages=PARTS, *, method="POST", headers=(), kind="http"):
    waiting, sent = list(messages), []

    async def receive():
        return waiting.pop(0)

    async def send(message) -> None:
        sent.append(message)

    scope = {"type": kind, "path": "/tts", "method": method, "headers": list(headers)}
    await RetryUnanswered(replicas)(scope | {"extensions": DENIAL}, receive, send)
    return sent


def refused(sent) -> bool:
    start, body = sent
    headers = dict(start["headers"])
    code = json.loads(body["body"])["error"]["code"]
    return (start["status"], headers[b"retry-after"], code) == (503, b"1", "replica_lost")


async def test_what_was_not_answered_is_asked_again_from_its_first_message() -> None:
    replicas = Replicas(lost=1)
    assert await ask(replicas) == ANSWER
    assert replicas.heard == [PARTS, PARTS]
    assert len(replicas.scope["headers"]) == 1, "Ray's header is added once"


async def test_a_body_that_was_half_read_is_read_to_its_end() -> None:
    replicas = Replicas(lost=1, read=1)
    await ask(replicas)
    replicas = Replicas(lost=1, read=1)

    async def all_of_it(scope, receive, send) -> None:
        replicas.read = 2 if replicas.heard else 1
        await replicas(scope, receive, send)

    assert await ask(all_of_it) == ANSWER
    assert replicas.heard == [PARTS[:1], PARTS]


async def test_a_request_that_ends_every_replica_is_refused() -> None:
    replicas = Replicas(lost=9)
    assert refused(await ask(replicas))
    assert len(replicas.heard) == ATTEMPTS


@pytest.mark.parametrize(
    ("method", "kind", "again"),
    [
        ("GET", b"", True),
        ("POST", b"application/json", True),
        ("POST", b"Application/JSON; charset=utf-8", True),
        ("POST", b"multipart/form-data; boundary=x", False),
        ("POST", b"audio/flac", False),
        ("DELETE", b"", False),
    ],
)
async def test_what_may_have_changed_something_is_not_asked_again(method, kind, again) -> None:
    headers = [(b"content-type", kind)] if kind else []
    replicas = Replicas(lost=1)
    sent = await ask(replicas, method=method, headers=headers)
    assert len(replicas.heard) == (2 if again else 1)
    assert sent == ANSWER if again else refused(sent)


async def test_an_answer_that_was_begun_breaks() -> None:
    replicas = Replicas(lost=0, answer=ANSWER[:1])
    assert await ask(replicas) == ANSWER[:1]
    assert len(replicas.heard) == 1


async def test_nobody_is_asked_for_a_client_that_left() -> None:
    replicas = Replicas(lost=9, read=3)
    assert await ask(replicas, [*PARTS, {"type": "http.disconnect"}]) == []
    assert len(replicas.heard) == 1


async def test_a_long_body_is_not_kept() -> None:
    part = {"type": "http.request", "body": bytes(KEPT_BYTES // 2), "more_body": True}
    replicas = Replicas(lost=1, read=3)
    assert refused(await ask(replicas, [part] * 3))
    assert len(replicas.heard) == 1


async def test_a_websocket_that_was_not_accepted_goes_to_another_replica() -> None:
    connect, accept = {"type": "websocket.connect"}, {"type": "websocket.accept", "headers": []}
    replicas = Replicas(lost=1, read=1, answer=[accept])
    assert await ask(replicas, [connect], kind="websocket") == [accept]
    assert replicas.heard == [[connect], [connect]]
    sent = await ask(Replicas(lost=9, read=1), [connect], kind="websocket")
    assert [one["type"] for one in sent] == [
        "websocket.http.response.start",
        "websocket.http.response.body",
    ]
    assert refused(sent)


async def test_a_websocket_that_was_accepted_breaks() -> None:
    connect, accept = {"type": "websocket.connect"}, {"type": "websocket.accept", "headers": []}
    replicas = Replicas(lost=0, read=1, answer=[accept])
    assert await ask(replicas, [connect], kind="websocket") == [accept]
    assert len(replicas.heard) == 1
