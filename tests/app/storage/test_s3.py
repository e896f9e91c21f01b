"""Voices in S3, over HTTP: moto's server, with keys that it checks."""

import os
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from app.engine.errors import Unavailable
from app.engine.voices import OPENAI_VOICES, Voices
from app.main import create_app
from app.settings import Settings
from app.storage.files import StoreAway
from app.storage.voice_store import NameTaken, VoiceStore, open_voice_store
from models.voices.voice import BuiltinVoices, Voice
from tests.app.storage.test_voice_store import CARD, recording, sound_of
from tests.app.tools.s3_server import S3Server, client, s3_running
from tests.app.tools.serving import served

pytestmark = pytest.mark.slow


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    with s3_running(monkeypatch) as server:
        yield server


def opened() -> VoiceStore:
    """Return the store of a further process: it shares no connection."""
    return open_voice_store("s3://bucket/voices", 9, look_up_s=60)  # however busy the machine is


def voices(store: VoiceStore) -> Voices:
    here = BuiltinVoices(Path(__file__).resolve().parents[3] / "weights" / "voices")
    return Voices(here, store, prompt_s=3.0)


def raises_unavailable(work) -> None:
    with pytest.raises(Unavailable) as refusal:
        work()
    assert refusal.value.retry_after_s


def all_are_refused(found: Voices, added: Voice) -> None:
    """What needs an upload is a 503; what needs none works."""
    content = recording()
    assert found.speaker(None, "me").name == found.default.name
    assert found.speaker(found.default.name, "me").name == found.default.name
    assert [one.owner for one in found.of("me")] == [None] * len(list(found.builtin))
    assert found.damaged("me") == []
    for work in (
        lambda: found.speaker(added.name, "me"),
        lambda: found.add("other", CARD, content, "me"),
        lambda: found.remove(added.name, "me"),
    ):
        raises_unavailable(work)


def test_voices_are_whole_or_not_there_and_seen_by_all_at_once(server) -> None:
    here, there = opened(), opened()
    assert there.find("anna", "me") is None  # and that is not remembered
    added = here.add("anna", "me", CARD, recording())
    assert there.find("anna", "me") == added
    assert [one.name for one in there.of("me")] == ["anna"]
    assert (there.owners(), there.count()) == (["me"], 1)
    assert sound_of(there, added) == recording().flac()
    with pytest.raises(NameTaken):
        there.add("anna", "me", CARD, recording(1))
    assert there.find("anna", "me") == added
    assert here.remove("anna", "me")
    assert there.find("anna", "me") is None
    assert there.count() == 0
    objects = client("s3").list_objects_v2(Bucket="bucket").get("Contents", [])
    assert objects == []


def test_an_upload_that_lost_the_race_is_told_and_changes_nothing(server, monkeypatch) -> None:
    """Both find the name free; S3 itself lets one create the object."""
    here, there = opened(), opened()
    added = here.add("anna", "me", CARD, recording())
    monkeypatch.setattr(there, "names_of", lambda owner: [])
    with pytest.raises(NameTaken):
        there.add("anna", "me", CARD, recording(1))
    assert here.find("anna", "me") == added
    assert sound_of(here, added) == recording().flac()


def test_with_wrong_credentials_uploads_are_unavailable_and_other_voices_speak(server) -> None:
    added = opened().add("anna", "me", CARD, recording())
    server.sign_in(os.environ["AWS_ACCESS_KEY_ID"], "wrong")
    store = opened()
    all_are_refused(voices(store), added)
    assert store.count() == 0
    with pytest.raises(StoreAway):
        store.has("anna", "me")


def test_a_server_that_went_away_is_used_again_when_it_is_back(server) -> None:
    store = opened()
    added = store.add("anna", "me", CARD, recording())
    server.kill()
    all_are_refused(voices(store), added)
    assert store.count() == 0
    server.start()
    store = opened()  # the new server has another key
    assert store.find("anna", "me") is None
    again = store.add("anna", "me", CARD, recording())
    assert voices(store).speaker("anna", "me").recording == recording().flac()
    assert again.digest == added.digest


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """A server that never answers: connections to it wait to be accepted."""
    with socket.create_server(("127.0.0.1", 0)) as door:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{door.getsockname()[1]}")
        monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "some")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "body")
        yield door


def connections(door: socket.socket) -> int:
    """Return how many wait to be accepted, and close them."""
    door.setblocking(False)
    count = 0
    with suppress(BlockingIOError):
        while True:
            door.accept()[0].close()
            count += 1
    return count


def test_a_server_that_never_answers_keeps_nobody_waiting(silent) -> None:
    found = voices(open_voice_store("s3://bucket/voices", 9))
    builtin = [one.name for one in found.builtin]
    for _ in range(100):
        for name in (*builtin, *OPENAI_VOICES, None):
            assert found.speaker(name, "me").owner is None
    assert [one.name for one in found.of("me")] == builtin
    raises_unavailable(lambda: found.speaker("anna", "me"))
    raises_unavailable(lambda: found.check_new("anna", "en", "me"))
    # Those asked whether it answers; no look-up above did.
    assert 1 <= connections(silent) < 20


def test_a_service_speaks_beside_a_store_that_never_answers(silent, toy) -> None:
    app = create_app(Settings(model=str(toy), device="cpu", voices="s3://bucket/voices"))
    with served(app) as client:
        for voice in ("toy", "alloy", "default"):
            answer = client.post("/tts", json={"input": "Hi.", "voice": voice, "seed": 1})
            assert answer.status_code == 200, answer.text
        answer = client.post("/tts", json={"input": "Hi.", "voice": "anna"})
        assert answer.status_code == 503
        assert answer.headers["retry-after"]
        assert client.get("/metrics").status_code == 200
        listed = client.get("/v1/audio/voices").raise_for_status().json()["voices"]
        assert "toy" in [one["id"] for one in listed]
