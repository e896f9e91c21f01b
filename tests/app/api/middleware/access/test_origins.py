import httpx
import pytest
from starlette.requests import HTTPConnection

from app.api.middleware.access.origins import Origins
from app.main import create_app
from app.settings import Settings
from tests.app.tools.answers import shape
from tests.app.tools.serving import served
from tests.fakes import fake_engine

GOOD = "https://good.example"


@pytest.fixture(scope="module")
def client():
    with served(create_app(Settings(origins=f" {GOOD},https://b.example "), fake_engine())) as one:
        yield one


def ask_before(client: httpx.Client, origin: str, method: str, headers: str) -> httpx.Response:
    return client.options(
        "/v1/audio/speech",
        headers={
            "origin": origin,
            "access-control-request-method": method,
            "access-control-request-headers": headers,
        },
    )


@pytest.mark.parametrize(
    ("listed", "origin", "allowed"),
    [
        ("", None, True),
        ("", "http://here:8000", True),
        ("", "https://here:8000", True),
        ("", "http://here:8001", False),
        ("", "http://here:8000.bad.example", False),
        ("", "", False),
        ("", "null", False),
        ("https://good.example", GOOD, True),
        ("https://good.example", "http://good.example", False),
        ("https://good.example", "https://good.example.bad", False),
        ("*", "https://any.example", True),
    ],
)
def test_pages_of_this_host_and_those_named_may(listed, origin, allowed) -> None:
    headers = [(b"host", b"here:8000")]
    if origin is not None:
        headers.append((b"origin", origin.encode()))
    asked = HTTPConnection({"type": "http", "headers": headers})
    assert Origins(listed).allow(asked) is allowed


def test_a_named_page_may_read_the_answer_and_every_header_of_ours(client) -> None:
    answer = client.post("/tts", json={"input": "Hi."}, headers={"origin": GOOD})
    assert answer.headers["access-control-allow-origin"] == GOOD
    exposed = {name.lower() for name in answer.headers["access-control-expose-headers"].split(", ")}
    ours = {name for name in answer.headers if name.startswith("x-")}
    assert len(ours) > 8
    assert ours <= exposed
    assert "Origin" in answer.headers["vary"]


def test_a_refusal_can_be_read_by_the_page_too(client) -> None:
    answer = client.post("/tts", json={"input": ""}, headers={"origin": GOOD})
    assert answer.status_code == 422
    assert answer.headers["access-control-allow-origin"] == GOOD


def test_a_named_page_may_send_a_key(client) -> None:
    answer = ask_before(client, GOOD, "POST", "authorization,content-type")
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-origin"] == GOOD
    assert "access-control-allow-credentials" not in answer.headers  # no cookies here


@pytest.mark.parametrize(
    ("origin", "method", "headers"),
    [
        ("https://bad.example", "POST", "content-type"),
        (GOOD, "TRACE", "content-type"),
        (GOOD, "POST", "x-anything"),
    ],
)
def test_other_preflights_are_refused_in_the_one_shape(client, origin, method, headers) -> None:
    answer = ask_before(client, origin, method, headers)
    assert answer.status_code == 403
    assert shape(answer)["code"] == "cors"


def test_without_named_pages_no_page_is_told_anything(toy_server) -> None:
    answer = ask_before(toy_server, GOOD, "POST", "content-type")
    assert answer.status_code == 403
    assert not [name for name in answer.headers if name.startswith("access-control")]
