"""What answers of the API say: errors in the one shape, reports, events."""

import json
import socket
from typing import Any

import httpx

from tests.app.tools.serving import connected


def shape(answer: httpx.Response) -> dict[str, Any]:
    """Return the error of an answer; fail if it is not exactly the one shape."""
    body = answer.json()
    assert list(body) == ["error"]
    error: dict[str, Any] = body["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert isinstance(error["message"], str)
    assert error["message"]
    assert error["type"] == (
        "invalid_request_error" if answer.status_code < 500 else "server_error"
    )
    assert answer.headers["x-request-id"]
    return error


def refusal(answer: httpx.Response) -> tuple[int, str | None]:
    """Return status and field of a refusal, which must have the one shape."""
    return answer.status_code, shape(answer)["param"]


def path_of(answer: httpx.Response, rest: str = "") -> str:
    """Return the path of a speech's report, or of something below it."""
    return f"/v1/audio/speech/{answer.headers['x-request-id']}{rest}"


def report_of(client: httpx.Client, answer: httpx.Response) -> dict[str, Any]:
    """Return the report of a speech that was answered."""
    found = client.get(path_of(answer))
    assert found.status_code == 200, found.text
    report: dict[str, Any] = found.json()
    return report


def asked(client: httpx.Client, wanted: dict[str, Any]) -> tuple[dict[str, Any], httpx.Response]:
    """Speak by `POST /tts`; return the report and the answer."""
    answer = client.post("/tts", json=wanted)
    assert answer.status_code == 200, answer.text
    return report_of(client, answer), answer


def events_of(answer: httpx.Response) -> list[dict[str, Any]]:
    """Return the events of a stream, server-sent or a line each."""
    assert answer.status_code == 200, answer.text
    return [json.loads(line.removeprefix("data: ")) for line in answer.text.splitlines() if line]


def nothing_works(client: httpx.Client) -> bool:
    """Return whether no request of a server is speech that is being made."""
    return "tts_http_working 0.0" in client.get("/metrics").text


def bearer(key: str) -> dict[str, str]:
    """Return the header that sends a key; none without."""
    return {"authorization": f"Bearer {key}"} if key else {}


def raw(client: httpx.Client, *parts: bytes, more: bool = True) -> bytes:
    """Send bytes that no client would; return what comes back until the server closes.

    Args:
        more: Whether the connection stays open for more.
    """
    with connected(client) as connection:
        for part in parts:
            connection.sendall(part)
        if not more:
            connection.shutdown(socket.SHUT_WR)
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
    return answer
