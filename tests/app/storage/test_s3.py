"""Voices in S3, over HTTP: moto's server, with keys that it checks."""

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.engine.errors import Unavailable
from app.engine.voices import Voices
from app.storage.remote_voices import open_voice_store
from app.storage.voice_store import NameTaken, StoreAway, VoiceStore
from models.voices.voice import BuiltinVoices, Voice
from tests.app.storage.test_remote_voices import CARD, recording

boto3 = pytest.importorskip("boto3")
pytest.importorskip("moto")
pytest.importorskip("flask_cors")
fsspec = pytest.importorskip("fsspec")
pytest.importorskip("s3fs")

pytestmark = pytest.mark.slow

_POLICY = (
    '{"Version": "2012-10-17",'
    ' "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}'
)


def client(service: str):
    """Return a client with the credentials of now; `boto3.client` keeps the first."""
    return boto3.Session().client(service)


class S3Server:
    """A server of S3's protocol in a process; what it stores ends with it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._set = monkeypatch.setenv
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self._port}"
        self._set("AWS_ENDPOINT_URL", self.url)
        self._set("AWS_DEFAULT_REGION", "us-east-1")

    def start(self) -> None:
        """Start it, with a user whose keys are in the environment, and an empty bucket."""
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self._port)]
        # So many requests are answered without keys: those that make the user.
        environment = os.environ | {"INITIAL_NO_AUTH_ACTION_COUNT": "3"}
        self._process = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
        began_s = time.monotonic()
        while True:
            try:
                socket.create_connection(("127.0.0.1", self._port), 1).close()
                break
            except OSError:
                assert time.monotonic() < began_s + 60, "it did not start"
                time.sleep(0.05)
        self.sign_in("nobody", "nothing")
        iam = client("iam")
        iam.create_user(UserName="voices")
        key = iam.create_access_key(UserName="voices")["AccessKey"]
        iam.put_user_policy(UserName="voices", PolicyName="s3", PolicyDocument=_POLICY)
        self.sign_in(key["AccessKeyId"], key["SecretAccessKey"])
        client("s3").create_bucket(Bucket="bucket")

    def sign_in(self, key: str, secret: str) -> None:
        """Set the credentials of stores that are opened from now on."""
        self._set("AWS_ACCESS_KEY_ID", key)
        self._set("AWS_SECRET_ACCESS_KEY", secret)
        fsspec.get_filesystem_class("s3").clear_instance_cache()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[S3Server]:
    server = S3Server(monkeypatch)
    try:
        server.start()
        yield server
    finally:
        server.kill()


def opened() -> VoiceStore:
    """Return the store of a further process: it shares no connection."""
    fsspec.get_filesystem_class("s3").clear_instance_cache()
    return open_voice_store("s3://bucket/voices", 9)


def sound_of(store: VoiceStore, voice: Voice) -> object:
    """Return the audio of a voice that is there."""
    found = store.opened(voice)
    assert found is not None
    return found.recording


def voices(store: VoiceStore) -> Voices:
    here = BuiltinVoices(Path(__file__).resolve().parents[3] / "weights" / "voices")
    return Voices(here, store, prompt_s=3.0)


def raises_unavailable(work) -> None:
    with pytest.raises(Unavailable) as refusal:
        work()
    assert refusal.value.retry_after_s


def all_are_refused(found: Voices, added: Voice) -> None:
    """What needs an upload is a 503; what needs none works."""
    content = recording().flac()
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
    monkeypatch.setattr(there, "_names_of", lambda owner: [])
    with pytest.raises(NameTaken):
        there.add("anna", "me", CARD, recording(1))
    assert here.find("anna", "me") == added
    assert sound_of(here, added) == recording().flac()


def test_audio_of_another_hash_is_not_spoken(server, caplog) -> None:
    added = opened().add("anna", "me", CARD, recording())
    key = str(added.audio).removeprefix("bucket/")
    client("s3").put_object(Bucket="bucket", Key=key, Body=recording(1).flac())
    assert opened().opened(added) is None
    assert "SHA-256" in caplog.text


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
