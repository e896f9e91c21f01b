"""Heads that are too large, or that a proxy could read otherwise, sent as bytes."""

import json

import httpx
import pytest

from app.api.middleware.head import MAX_HEAD_BYTES
from tests.app.tools.answers import raw

BODY = b'{"input": "Hi."}'
POST = b"POST /tts HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
NEXT = b"GET /v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


def sent(client: httpx.Client, content: bytes) -> list[tuple[int, bytes]]:
    """Send bytes at once; return status and rest of each answer until the server closes."""
    return [(int(one[:3]), one) for one in raw(client, content).split(b"HTTP/1.1 ")[1:]]


@pytest.mark.parametrize(
    "lengths",
    [
        b"Content-Length: %d\r\nTransfer-Encoding: chunked\r\n" % len(BODY),
        b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
    ],
)
def test_two_lengths_of_a_body_are_refused_and_nothing_after_them_is_read(
    client, backend, lengths
) -> None:
    began = len(backend.spoken)
    chunked = b"%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY)
    answers = sent(client, POST + lengths + b"\r\n" + chunked + NEXT)
    assert [status for status, _ in answers] == [400]
    assert b"connection: close" in answers[0][1].lower()
    error = json.loads(answers[0][1].partition(b"\r\n\r\n")[2])["error"]
    assert error["code"] == "two_lengths"
    assert len(backend.spoken) == began


def test_a_chunked_body_alone_is_taken(client) -> None:
    chunked = b"%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY)
    answers = sent(
        client, POST + b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked
    )
    assert [status for status, _ in answers] == [200]


@pytest.mark.parametrize("many", [1, 80])
def test_a_head_that_comes_at_once_is_no_larger_than_one_that_comes_in_parts(client, many) -> None:
    size = (MAX_HEAD_BYTES + 11_000) // many
    headers = b"".join(b"X-%d: %s\r\n" % (number, b"a" * size) for number in range(many))
    content = b"GET /v1/models HTTP/1.1\r\nHost: 127.0.0.1\r\n" + headers + b"\r\n"
    assert len(content) > MAX_HEAD_BYTES + 10_000
    answers = sent(client, content + NEXT)
    assert [status for status, _ in answers] in ([431], [400])  # 400: it came in parts after all


def test_a_head_of_most_of_that_is_taken(client) -> None:
    headers = {f"x-{number}": "a" * 1000 for number in range(15)}
    assert client.get("/v1/models", headers=headers).status_code == 200


@pytest.mark.parametrize("path", ["/health/", "/tts/", "/v1/models/"])
def test_nobody_is_redirected_to_a_host_of_the_clients_choice(client, path) -> None:
    answer = client.get(path, headers={"host": "localhost"}, follow_redirects=False)
    assert answer.status_code == 404
    assert "location" not in answer.headers
