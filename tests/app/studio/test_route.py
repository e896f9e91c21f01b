"""The studio's files: who gets them, what they are, and that they are all of them."""

import gzip
import hashlib
import re
from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from app.main import create_app
from app.settings import Settings
from app.studio.files import INDEX, PARTS, VENDOR
from samplers.ar.trace import FIELDS, TOPS
from samplers.knobs.params import SamplingParams
from tests.app.tools.answers import shape
from tests.fakes import fake_engine

HTML = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
KEY = "alice-0123456789"
PAGE = sorted(INDEX.parent.iterdir())


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with TestClient(create_app(Settings(), fake_engine()), base_url="http://localhost") as client:
        yield client


def test_a_browser_gets_the_studio_at_both_places(client) -> None:
    for path in ("/", "/studio"):
        answer = client.get(path, headers=HTML)
        assert answer.status_code == 200
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        assert answer.text == INDEX.read_text()


@pytest.mark.parametrize("accept", ["*/*", "application/json"])
def test_a_program_gets_its_404_at_the_root(client, accept) -> None:
    answer = client.get("/", headers={"accept": accept})
    assert answer.status_code == 404
    assert shape(answer)["code"] == "not_found"


def test_every_file_that_the_page_names_is_served(client) -> None:
    named = set(re.findall(r'(?:src|href)="(studio/[^"]+)"', INDEX.read_text()))
    for module in INDEX.parent.glob("*.js"):
        named |= {f"studio/{name}" for name in re.findall(r'"\./([\w.]+)"', module.read_text())}
    assert len(named) > 8
    for name in named:
        answer = client.get(f"/{name}")
        assert answer.status_code == 200, name
        kinds = ("text/javascript", "text/css", "application/json", "image/svg+xml")
        assert answer.headers["content-type"].startswith(kinds)
        assert answer.headers["x-content-type-options"] == "nosniff"


def test_a_file_that_the_browser_has_is_not_sent_again(client) -> None:
    for path in (*PARTS, "/studio"):
        first = client.get(path)
        again = client.get(path, headers={"if-none-match": first.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")
        assert client.get(path, headers={"if-none-match": '"older"'}).content == first.content


@pytest.mark.parametrize("name", ["missing.js", "index.html", "..%2froute.py", "README.md"])
def test_nothing_else_is_served(client, name) -> None:
    answer = client.get(f"/studio/{name}")
    assert answer.status_code == 404
    shape(answer)


def test_no_file_needs_a_key_but_every_request_of_the_page_does() -> None:
    app = create_app(Settings(api_keys=f"alice:{KEY}"), fake_engine())
    with TestClient(app) as client:
        paths = (*PARTS, "/", "/studio", "/docs")
        assert {client.get(path, headers=HTML).status_code for path in paths} == {200}
        assert client.get("/v1/presets").status_code == 401
        assert client.get("/studio/missing.js").status_code == 401


def test_what_a_request_may_hold_is_that_of_the_openapi_document(client) -> None:
    told = client.get("/studio/knobs.json")
    body = client.get("/openapi.json").json()["paths"]["/tts"]["post"]["requestBody"]
    assert told.json()["properties"] == body["content"]["application/json"]["schema"]["properties"]
    assert {"input", "voice", "language", "pronunciations"} <= set(told.json()["phonemes"])
    assert len(told.content) < 80_000


@pytest.mark.parametrize("path", ["/openapi.json", "/studio/knobs.json", "/favicon.ico"])
def test_what_changes_with_a_version_alone_is_not_sent_again(client, path) -> None:
    first = client.get(path)
    again = client.get(path, headers={"if-none-match": first.headers["etag"]})
    assert (first.status_code, again.status_code, again.content) == (200, 304, b"")


@pytest.mark.parametrize(
    ("path", "compressed"),
    [
        ("/studio", True),
        ("/studio/style.css", True),
        ("/openapi.json", True),
        ("/v1/presets", True),
        ("/metrics", True),
        ("/health", False),  # as small as its head
    ],
)
def test_text_is_compressed_for_who_can_read_that(client, path, compressed) -> None:
    if path != "/studio":
        told = client.get(path, headers={"accept-encoding": "gzip"})
        assert (told.headers.get("content-encoding") == "gzip") == compressed, path
    plain = client.get(path, headers={"accept-encoding": "identity"})
    assert "content-encoding" not in plain.headers
    assert client.get(path, headers={"accept-encoding": "gzip"}).text == plain.text or (
        path in {"/metrics", "/health"}
    )


@pytest.mark.parametrize("form", ["wav", "mp3", "pcm", "opus", "flac"])
def test_sound_is_not_compressed(client, form) -> None:
    body = {"input": "Hello there.", "response_format": form}
    headers = {"accept-encoding": "gzip"}
    told = client.post("/v1/audio/speech", json=body, headers=headers)
    assert told.status_code == 200
    assert "content-encoding" not in told.headers


def test_the_page_may_load_from_this_service_alone(client) -> None:
    policy = client.get("/studio").headers["content-security-policy"]
    sources = dict(part.split(" ", 1) for part in policy.split("; "))
    assert sources["default-src"] == "'none'"
    assert sources["script-src"] == sources["connect-src"] == "'self'"
    assert "http" not in policy


def test_the_documentation_names_no_other_host(client) -> None:
    page = client.get("/docs").text
    assert not re.findall(r"https?://(?!localhost)", page)
    for name in re.findall(r'(?:src|href)="([^"]+)"', page):
        assert client.get(f"/{name}").status_code == 200
    assert client.get("/redoc").status_code == 404


def test_files_of_others_are_those_whose_hashes_and_licences_are_beside_them() -> None:
    sums = dict(line.split()[::-1] for line in (VENDOR / "SHA256SUMS").read_text().splitlines())
    files = {path.name for path in VENDOR.iterdir()} - {"SHA256SUMS", "README.md"}
    assert set(sums) == files
    for name, digest in sums.items():
        assert hashlib.sha256((VENDOR / name).read_bytes()).hexdigest() == digest, name
    told = (VENDOR / "README.md").read_text()
    for name in files:
        assert f"`{name}`" in told, name


def test_the_page_of_our_own_is_under_70_kb_as_it_is_sent() -> None:
    assert sum(len(gzip.compress(path.read_bytes(), 6)) for path in PAGE) < 70_000


def test_no_knob_is_named_in_the_page() -> None:
    """But `preset` and `seed`, fields of the trace, and the name of the sampler entropix."""
    traced = {*FIELDS, *TOPS}
    knobs = set(SamplingParams.model_fields) - {"preset", "seed", "entropix"} - traced
    source = "\n".join(path.read_text() for path in PAGE)
    # A word in a sentence is no name: those of one word count only as a property or in quotes.
    found = {
        name
        for name in knobs
        if re.search(rf"\b{name}\b" if "_" in name else rf"[.\"'`]{name}\b|\b{name}:", source)
    }
    assert found == set()
