"""A voice goes up, speaks, stays its owner's, and goes; what is no voice is refused."""

import io
import logging
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import soundfile

from app.api.services import MAX_UPLOADS
from app.engine.voices import OPENAI_VOICES
from app.logs import TextLines
from app.main import create_app
from app.settings import Settings
from tests.app.tools.answers import bearer, refusal
from tests.app.tools.serving import connected, served, until
from tests.speech_like import packed, silent_file, speech_like
from tests.toy.make_toy import MODEL, make

ANNA, BEN = "anna-0123456789abc", "ben-0123456789abcd"
WAV = packed(speech_like(1.2))
FIELDS = {"name": "anna", "consent": "true"}
FILE = {"file": ("a.wav", WAV)}
VOICES = "/v1/audio/voices"
MAX_BYTES = 300_000


def settings(model: Path, folder: Path, **others: Any) -> Settings:
    return Settings(
        model=str(model),
        device="cpu",
        voices=str(folder),
        max_upload_bytes=MAX_BYTES,
        **others,
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("voices")


@pytest.fixture(scope="module")
def server(toy: Path, folder: Path) -> Iterator[httpx.Client]:
    """A server without keys."""
    with served(create_app(settings(toy, folder))) as client:
        yield client


@pytest.fixture
def client(server: httpx.Client) -> Iterator[httpx.Client]:
    """The same, with no voices left over."""
    yield server
    for name in uploaded(server):
        server.delete(f"{VOICES}/{name}").raise_for_status()


def form(files: dict[str, Any] = FILE, **fields: Any) -> dict[str, Any]:
    return {"data": FIELDS | fields, "files": files}


def upload(client: httpx.Client, content: bytes = WAV, /, **fields: Any) -> httpx.Response:
    return client.post(VOICES, **form({"file": ("a.wav", content)}, **fields))


def uploaded(client: httpx.Client, key: str = "") -> list[str]:
    answer = client.get(VOICES, headers=bearer(key)).raise_for_status()
    known = {"toy", "default", *OPENAI_VOICES}
    return [voice["id"] for voice in answer.json()["voices"] if voice["id"] not in known]


def spoken(client: httpx.Client, voice: str, key: str = "", **others: Any) -> httpx.Response:
    body = {"input": "Hi.", "voice": voice, "seed": 1, "max_duration_s": 0.3, **others}
    return client.post("/tts", json=body, headers=bearer(key))


def codes(client: httpx.Client, voice: str) -> str:
    answer = spoken(client, voice)
    assert answer.status_code == 200, answer.text
    return answer.headers["x-codes-sha256"]


@pytest.mark.slow
def test_an_upload_is_told_what_may_spoil_it_and_where_it_begins(client) -> None:
    long = packed(np.concatenate([speech_like(2.0), np.zeros(24_000), speech_like(1.2, seed=2)]))
    answer = upload(client, long, name="ella", start_s="2.5")
    assert answer.status_code == 200, answer.text
    voice = answer.json()
    assert voice["audio_s"] == pytest.approx(1.25, abs=0.1)
    assert "no speech was found in it" in voice["warnings"]  # noise with syllables
    assert client.get("/v1/audio/voices/ella").json()["warnings"] == []
    assert client.delete("/v1/audio/voices/ella").status_code == 200
    assert refusal(upload(client, long, name="ella", start_s="-1")) == (422, "start_s")
    assert refusal(upload(client, long, name="ella", start_s="100")) == (422, "file")


def test_a_voice_goes_up_speaks_and_goes(client) -> None:
    told = {"title": "Anna B.", "transcript": "Good morning.", "description": "Calm."}
    told |= {"gender": "female", "accent": "Scottish"}
    answer = upload(client, language="en-GB", **told)
    assert answer.status_code == 200, answer.text
    voice = answer.json()
    assert voice["language"] == "en"
    assert (voice["object"], voice["id"], voice["name"]) == ("audio.voice", "anna", "Anna B.")
    assert voice["audio_s"] == pytest.approx(1.2, abs=0.02)
    assert voice["prompt_s"] == pytest.approx(MODEL.max_prompt_frames / 75, abs=0.001)
    assert told | {"name": "Anna B.", "kind": "own"} == {
        name: voice["name" if name == "title" else name] for name in (*told, "name", "kind")
    }
    assert client.get(f"{VOICES}/anna").json() == voice | {"warnings": []}
    assert uploaded(client) == ["anna"]
    listed = client.get(VOICES).json()["voices"]
    (same,) = (one for one in listed if one["id"] == "anna")
    assert same == {name: voice.get(name) for name in same} | {
        "is_default": False,
        "alias_of": None,
        "damaged": False,
    }
    assert codes(client, "anna") != codes(client, "toy")
    assert spoken(client, "anna").headers["x-voice"] == "anna"
    gone = client.delete(f"{VOICES}/anna")
    assert gone.json() == {"object": "audio.voice", "id": "anna", "deleted": True}
    assert uploaded(client) == []
    for ask in (client.get, client.delete):
        assert refusal(ask(f"{VOICES}/anna")) == (404, "voice")
    assert refusal(client.get(f"{VOICES}/anna/audio")) == (404, "voice")
    assert refusal(spoken(client, "anna")) == (404, "voice")


@pytest.mark.slow
def test_a_voice_survives_a_restart_and_another_model(client, folder, tmp_path, toy) -> None:
    upload(client).raise_for_status()
    before = codes(client, "anna")
    with served(create_app(settings(toy, folder))) as restarted:
        assert codes(restarted, "anna") == before
    with served(create_app(settings(make(tmp_path / "other", seed=1), folder))) as other:
        assert codes(other, "anna") != codes(other, "toy")


def test_what_is_being_spoken_goes_on_when_its_voice_is_deleted(client) -> None:
    upload(client).raise_for_status()
    body = {"input": "Hi. " * 9, "voice": "anna", "seed": 1, "response_format": "pcm"}
    body |= {"max_duration_s": 2, "nar_levels": 0, "stream": True}
    whole = client.post("/tts", json=body).content
    with client.stream("POST", "/tts", json=body) as answer:
        parts = answer.iter_bytes()
        first = next(parts)
        client.delete(f"{VOICES}/anna").raise_for_status()
        assert first + b"".join(parts) == whole
    assert refusal(client.post("/tts", json=body)) == (404, "voice")


def test_a_model_that_hears_no_prompts_says_so(client, folder, tmp_path) -> None:
    upload(client).raise_for_status()
    deaf = make(tmp_path / "deaf", config=MODEL.model_copy(update={"max_prompt_frames": 0}))
    with served(create_app(settings(deaf, folder))) as other:
        answer = upload(other, name="ben")
        assert refusal(answer) == (422, "file")
        assert "hears no prompts" in answer.json()["error"]["message"]
        assert uploaded(other) == []
        assert refusal(spoken(other, "anna")) == (422, "voice")
        assert other.get(f"{VOICES}/anna").json()["prompt_s"] == 0
        assert codes(other, "toy")


MULTIPART = "multipart/form-data; boundary=x"
PART = b"--x\r\nContent-Disposition: form-data; name="
SOME_FILE = PART + b'"file"; filename="a.wav"\r\n\r\n'
WRONG_FIELDS: dict[str, tuple[Any, ...]] = {
    "name": (
        "", "!", "\u0410\u043d\u043d\u0430", "../../etc/passwd", "anna\0", "anna\r\nX-Evil: 1",
        "anna\n", "a" * 65, ["anna", "ben"],
    ),
    "consent": (
        "false", "", "cons_123", "1", "yes", "on", "True", "TRUE", "t", "y", " true",
    ),
    "language": ("fr", "x" * 99),
    "title": ("a\nb",),
    "transcript": ("x" * 1001,),
    "description": ("\x1b[31m",),
    "type": ("prompt",),
    "speed": ("2",),
    "url": ("http://127.0.0.1:9/a.wav",),
}  # fmt: skip
NO_VOICES = (
    b"", b"no audio", packed(speech_like(0.5)), packed(speech_like() * 0),
    silent_file(600, "FLAC"), silent_file(240, "OGG", rate_hz=8_000), WAV[:50],
)  # fmt: skip


def raw(content: Any, kind: str = MULTIPART) -> dict[str, Any]:
    return {"content": content, "headers": {"content-type": kind}}


# What is posted, status, field
REFUSED: list[tuple[dict[str, Any], int, str | None]] = [
    *((form(**{name: one}), 422, name) for name, values in WRONG_FIELDS.items() for one in values),
    *((form(name=one), 409, "name") for one in ("default", "toy", "alloy")),
    *((form({"file": one}), 422, "file") for one in NO_VOICES),
    (form(transcript="x" * 40_000), 422, None),
    ({"data": {"consent": "true"}, "files": FILE}, 422, "name"),
    ({"data": {"name": "anna"}, "files": FILE}, 422, "consent"),
    *((form({name: WAV}), 422, name) for name in ("audio", "title", "")),
    (form(FILE | {"audio_sample": WAV}), 422, "file"),
    (form({"audio_sample": WAV}, file="text"), 422, "file"),
    ({"data": FIELDS}, 415, None),
    ({"json": FIELDS}, 415, None),
    (form({"file": b"\0" * MAX_BYTES}), 413, None),
    (raw(iter([SOME_FILE, bytes(MAX_BYTES)])), 413, None),
    (raw(PART + b'"name"\r\n\r\n\xff\r\n' + SOME_FILE + b"RIFF\r\n--x--\r\n"), 422, "consent"),
    (raw(b"--x\r\n\r\n", "multipart/form-data"), 422, None),
    (raw(b"no boundary"), 422, None),
    (raw(PART + b'"name"'), 422, "file"),
    (raw(b"--x\r\nContent-Type: text/plain\r\n\r\na\r\n--x--"), 422, None),
    (raw(b"--x--\r\n", MULTIPART + "; charset=none"), 422, "file"),
    (raw(b"--x--\r\n", "multipart/form-data; boundary=" + "x" * 500), 422, None),
    (raw(b""), 422, "file"),
]


@pytest.mark.parametrize(("sent", "status", "param"), REFUSED)
def test_a_wrong_upload_is_refused_by_name_and_leaves_nothing(
    client, folder, sent, status, param
) -> None:
    answer = client.post(VOICES, **sent)
    assert refusal(answer) == (status, param)
    assert "x-evil" not in answer.headers
    assert uploaded(client) == []
    assert not list(folder.rglob("*.flac"))


@pytest.mark.parametrize(
    ("typed", "name", "title"),
    [
        ("Anna B", "anna-b", "Anna B"),
        ("Anna", "anna", "Anna"),
        ("Zoë Müller (2)", "zoe-muller-2", "Zoë Müller (2)"),
        ("anna-b", "anna-b", "anna-b"),
        ("Dr. O'Neil", "dr-o-neil", "Dr. O'Neil"),
    ],
)
def test_a_name_that_was_typed_is_the_title_of_its_id(client, typed, name, title) -> None:
    answer = upload(client, name=typed)
    assert (answer.json()["id"], answer.json()["name"]) == (name, title)
    client.delete(f"{VOICES}/{name}").raise_for_status()


def test_a_title_that_is_given_is_kept(client) -> None:
    answer = upload(client, name="Anna B", title="Our Anna")
    assert (answer.json()["id"], answer.json()["name"]) == ("anna-b", "Our Anna")
    client.delete(f"{VOICES}/anna-b").raise_for_status()


@pytest.mark.parametrize(
    "name", ["..%2f..%2fetc%2fpasswd", "%2e%2e", "anna.json", "*", "a%00b", "a%0d%0ab", "x" * 3000]
)
def test_no_path_leads_out_of_the_folder(client, folder, name) -> None:
    upload(client).raise_for_status()
    before = sorted(folder.rglob("*"))
    for method in ("GET", "DELETE"):
        assert refusal(client.request(method, f"{VOICES}/{name}"))[0] == 404
    assert sorted(folder.rglob("*")) == before


def test_a_voice_is_a_name_or_a_file_and_nothing_is_fetched(client) -> None:
    with socket.create_server(("127.0.0.1", 0)) as door:
        door.setblocking(False)
        url = f"http://127.0.0.1:{door.getsockname()[1]}/a.wav"
        for voice in (url, "file:///etc/passwd", "/etc/passwd", "../toy"):
            wanted = {"input": "Hi.", "voice": voice}
            assert refusal(client.post("/tts", json=wanted))[1] == "voice"
        form = {"name": "anna", "consent": "true"}
        assert client.post(VOICES, data=form | {"file": url}).status_code in {415, 422}
        sent = {"file": (url, url.encode(), "audio/x-mpegurl")}
        assert refusal(client.post(VOICES, data=form, files=sent)) == (422, "file")
        with pytest.raises(BlockingIOError):
            door.accept()


def test_the_recording_of_a_voice_can_be_heard(client, toy) -> None:
    upload(client).raise_for_status()
    answer = client.get(f"{VOICES}/anna/audio").raise_for_status()
    assert answer.headers["content-type"] == "audio/flac"
    samples, rate = soundfile.read(io.BytesIO(answer.content))
    assert len(samples) / rate == pytest.approx(1.2, abs=0.02)
    built_in = client.get(f"{VOICES}/toy/audio").raise_for_status().content
    assert built_in == (toy / "voices" / "toy.flac").read_bytes()
    assert client.get(f"{VOICES}/default/audio").content == built_in


def test_one_voice_is_the_default_aliases_say_whose_they_are_and_all_built_in_ones_stay(
    client,
) -> None:
    voices = client.get(VOICES).json()["voices"]
    assert [one["id"] for one in voices if one["is_default"]] == ["toy"]
    assert {one["kind"] for one in voices} == {"builtin"}
    assert {one["alias_of"] for one in voices} == {None, "toy"}
    assert client.get(f"{VOICES}/toy").json()["kind"] == "builtin"
    for one in voices:
        assert refusal(client.delete(f"{VOICES}/{one['id']}"))[0] == 403


@pytest.mark.parametrize(
    ("query", "names_alone"), [("", False), ("?legacy=false", False), ("?legacy=true", True)]
)
def test_the_list_is_of_names_alone_where_an_older_client_asks(client, query, names_alone) -> None:
    names = [one["id"] for one in client.get(VOICES).json()["voices"]]
    listed = client.get(f"{VOICES}{query}").json()["voices"]
    assert (listed if names_alone else [one["id"] for one in listed]) == names
    assert refusal(client.get(f"{VOICES}?legacy=1")) == (422, "legacy")


def test_only_some_uploads_are_held_in_memory_at_once() -> None:
    assert MAX_UPLOADS * Settings().max_upload_bytes < 1 << 26


def test_what_is_logged_of_an_upload_is_a_line_each(client, caplog) -> None:
    caplog.set_level(logging.DEBUG)
    upload(client, name="anna\r\nforged")
    client.get(f"{VOICES}/a%0d%0aforged")
    records: list[logging.LogRecord] = []
    ends_s = time.monotonic() + 20
    while len(records) < 2 and time.monotonic() < ends_s:  # a line is written after its answer
        time.sleep(0.01)
        records = [record for record in caplog.records if record.name.startswith("app.")]
    assert len(records) >= 2
    for record in records:
        record.request_id = "-"
        assert TextLines().format(record).isprintable()


@pytest.fixture(scope="module")
def keyed(toy: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A server with two keys, and a voice that was there before there were any."""
    folder = tmp_path_factory.mktemp("keyed")
    with served(create_app(settings(toy, folder))) as client:
        upload(client, name="shared").raise_for_status()
    keys = f"anna:{ANNA},ben:{BEN}"
    with served(create_app(settings(toy, folder, api_keys=keys, max_voices=2))) as client:
        yield client


@pytest.mark.slow
def test_a_voice_is_its_keys_alone(keyed) -> None:
    def mine(key: str, name: str, seed: int) -> httpx.Response:
        keyed.headers.update(bearer(key))
        try:
            return upload(keyed, packed(speech_like(1.2, seed=seed)), name=name)
        finally:
            del keyed.headers["authorization"]

    assert mine(ANNA, "one", 1).json()["kind"] == "own"
    assert uploaded(keyed, ANNA) == ["shared", "one"]
    assert uploaded(keyed, BEN) == ["shared"]
    for method in ("GET", "DELETE"):
        asked = keyed.request(method, f"{VOICES}/one", headers=bearer(BEN))
        assert refusal(asked) == (404, "voice")
    heard_by = {key: keyed.get(f"{VOICES}/one/audio", headers=bearer(key)) for key in (ANNA, BEN)}
    assert heard_by[ANNA].status_code == 200
    assert refusal(heard_by[BEN]) == (404, "voice")
    assert refusal(spoken(keyed, "one", BEN)) == (404, "voice")
    assert spoken(keyed, "one", ANNA).status_code == 200
    # The name is free for others, and means their own voice.
    mine(BEN, "one", 2).raise_for_status()
    heard = {spoken(keyed, "one", key).headers["x-codes-sha256"] for key in (ANNA, BEN)}
    assert len(heard) == 2
    mine(ANNA, "two", 3).raise_for_status()
    full = mine(ANNA, "three", 3)
    assert refusal(full)[0] == 403
    assert "2 voices" in full.json()["error"]["message"]
    assert refusal(mine(ANNA, "shared", 3)) == (409, "name")
    keyed.delete(f"{VOICES}/one", headers=bearer(ANNA)).raise_for_status()
    assert uploaded(keyed, BEN) == ["shared", "one"]


def test_what_is_everybodys_is_used_and_not_deleted_with_a_key(keyed) -> None:
    assert spoken(keyed, "shared", BEN).status_code == 200
    shared = keyed.get(f"{VOICES}/shared", headers=bearer(BEN)).json()
    assert shared["kind"] == "shared"
    assert refusal(keyed.delete(f"{VOICES}/shared", headers=bearer(BEN)))[0] == 403
    assert "shared" in uploaded(keyed, BEN)


def test_voices_and_refused_uploads_are_told_to_prometheus(client) -> None:
    def told(sample: str) -> float:
        lines = client.get("/metrics").text.splitlines()
        values = [line.rpartition(" ")[2] for line in lines if line.startswith(f"{sample} ")]
        return float(values[0]) if values else 0.0

    def refused(status: int) -> float:
        labels = f'method="POST",route="{VOICES}",status="{status}"'
        return told(f"tts_http_requests_total{{{labels}}}")

    before = refused(409), refused(422)
    assert told("tts_uploaded_voices") == 0
    assert upload(client).status_code == 200
    assert upload(client).status_code == 409
    assert upload(client, b"no audio", name="ben").status_code == 422
    assert told("tts_uploaded_voices") == 1
    until(lambda: (refused(409), refused(422)) == (before[0] + 1, before[1] + 1))
    client.delete(f"{VOICES}/anna").raise_for_status()
    assert told("tts_uploaded_voices") == 0


@pytest.mark.parametrize("card", [b"", b"{", b"{}", b"\xff", b'{"consent": false}', b"null"])
def test_a_voice_whose_card_is_damaged_is_listed_and_can_be_deleted(client, folder, card) -> None:
    upload(client).raise_for_status()
    (path,) = folder.rglob("anna.json")
    path.write_bytes(card)
    (item,) = [one for one in client.get(VOICES).json()["voices"] if one["id"] == "anna"]
    assert item["damaged"] is True
    assert "delete it" in item["description"]
    for answer in (client.get(f"{VOICES}/anna"), spoken(client, "anna")):
        assert refusal(answer) == (422, "voice")
        assert answer.json()["error"]["code"] == "voice_damaged"
    assert refusal(upload(client)) == (409, "name")
    assert client.delete(f"{VOICES}/anna").status_code == 200
    assert uploaded(client) == []
    assert not list(folder.rglob("anna*"))
    upload(client).raise_for_status()
    assert codes(client, "anna")


@pytest.mark.parametrize("content", [None, b"", b"fLaC"])
def test_a_voice_whose_sound_is_damaged_or_gone_is_told_as_damaged(client, folder, content) -> None:
    upload(client).raise_for_status()
    (path,) = folder.rglob("anna.*.flac")
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    (item,) = [one for one in client.get(VOICES).json()["voices"] if one["id"] == "anna"]
    assert item["damaged"] is True
    for answer in (
        client.get(f"{VOICES}/anna"),
        client.get(f"{VOICES}/anna/audio"),
        spoken(client, "anna"),
    ):
        assert refusal(answer) == (422, "voice")
        assert answer.json()["error"]["code"] == "voice_damaged"
    assert refusal(upload(client)) == (409, "name")
    assert client.delete(f"{VOICES}/anna").status_code == 200
    upload(client).raise_for_status()
    assert codes(client, "anna")


@pytest.mark.parametrize("name", ["Alloy", "ALLOY", "Toy", "DEFAULT", "Anna"])
def test_a_voice_is_found_whatever_the_case_of_its_name(client, name) -> None:
    upload(client).raise_for_status()
    assert codes(client, name) == codes(client, name.lower())
    assert client.get(f"{VOICES}/{name}").json()["id"] == spoken(client, name).headers["x-voice"]


@pytest.mark.parametrize("charset", ["undefined", "idna", "punycode", "hex", "nowhere", "utf-16"])
def test_an_odd_charset_is_no_mistake_of_ours(client, charset) -> None:
    request = client.build_request("POST", VOICES, data=FIELDS, files={"file": ("a.wav", WAV)})
    request.headers["content-type"] += f"; charset={charset}"
    answer = client.send(request)
    assert answer.status_code < 500
    if answer.status_code != 200:
        refusal(answer)


def test_uploads_that_stop_leave_room_for_those_of_another(server, client) -> None:
    head = (
        b"POST /v1/audio/voices HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9000\r\n"
        b"Content-Type: multipart/form-data; boundary=x\r\n\r\n--x\r\nCont"
    )
    with ExitStack() as held:

        def full() -> bool:
            held.enter_context(connected(server)).sendall(head)
            return upload(client, b"", name="probe").status_code == 503

        until(full)
        elsewhere = httpx.HTTPTransport(local_address="127.0.0.2")
        with httpx.Client(transport=elsewhere, base_url=server.base_url, timeout=60) as other:
            upload(other).raise_for_status()
