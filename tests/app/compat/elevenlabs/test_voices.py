"""Voices and models in ElevenLabs' shape."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from app.compat.elevenlabs.voices import ElevenLabsVoiceForm
from app.engine.errors import InvalidRequest
from app.main import create_app
from app.settings import Settings
from tests.app.tools.answers import refusal
from tests.app.tools.live_client import live, refused
from tests.app.tools.serving import served
from tests.speech_like import packed, speech_like

WAV = packed(speech_like(1.2))


@pytest.fixture(scope="module")
def server(toy: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    folder = tmp_path_factory.mktemp("voices")
    settings = Settings(model=str(toy), device="cpu", voices=str(folder), aliases="kokoro=model")
    with served(create_app(settings)) as client:
        yield client


@pytest.mark.parametrize(
    ("labels", "language"),
    [
        ("", None),
        ("null", None),  # from their package 2.78, where no labels are given
        ('{"language": "en", "accent": "british"}', "en"),
        (r'"{\"language\": \"en\"}"', "en"),  # where they are given as a text
    ],
)
def test_labels_are_read_as_each_version_of_their_package_sends_them(labels, language) -> None:
    form = ElevenLabsVoiceForm(name="My Voice", labels=labels, consent="true").ours()
    assert (form.name, form.language) == ("my-voice", language)


@pytest.mark.parametrize("labels", ["[]", "1", '"[]"', '"x"', "{"])
def test_other_labels_are_refused(labels) -> None:
    with pytest.raises(InvalidRequest, match="labels"):
        ElevenLabsVoiceForm(name="My Voice", labels=labels, consent="true").ours()


@pytest.mark.slow
def test_a_voice_is_added_described_and_deleted(server: httpx.Client) -> None:
    form = {"name": "My Voice", "labels": '{"consent": "true"}'}
    added = server.post("/v1/voices/add", data=form, files={"files": ("a.wav", WAV)})
    name = added.json()["voice_id"]
    described = server.get(f"/v1/voices/{name}").json()
    assert (described["voice_id"], described["name"]) == ("my-voice", "My Voice")
    assert described in server.get("/v1/voices").json()["voices"]
    assert server.delete(f"/v1/voices/{name}").json() == {"status": "ok"}
    assert refusal(server.get(f"/v1/voices/{name}")) == (404, "voice")


@pytest.mark.parametrize("consent", ["", "false", "yes", "TRUE"])
def test_consent_that_is_sent_and_not_true_is_none_whatever_the_labels_say(
    server: httpx.Client, consent: str
) -> None:
    form = {"name": "My Voice", "labels": '{"consent": "true"}', "consent": consent}
    added = server.post("/v1/voices/add", data=form, files={"files": ("a.wav", WAV)})
    assert refusal(added) == (422, "consent")


@pytest.mark.parametrize(("name", "shown"), [("toy", "toy"), ("TOY", "toy"), ("alloy", "alloy")])
def test_a_voice_is_described_under_any_of_its_names(
    server: httpx.Client, name: str, shown: str
) -> None:
    assert server.get(f"/v1/voices/{name}").json()["voice_id"] == shown


@pytest.mark.parametrize(
    ("method", "name", "status"),
    [
        ("GET", "nobody", 404),
        ("DELETE", "nobody", 404),
        ("DELETE", "toy", 403),
        ("DELETE", "alloy", 403),
    ],
)
def test_a_voice_that_is_not_the_callers_is_refused(
    server: httpx.Client, method: str, name: str, status: int
) -> None:
    assert server.request(method, f"/v1/voices/{name}").status_code == status


def test_models_are_a_bare_list_for_a_client_with_their_header(server: httpx.Client) -> None:
    ours = server.get("/v1/models").json()
    theirs = server.get("/v1/models", headers={"xi-api-key": "any"}).json()
    assert ours["object"] == "list"
    assert [one["model_id"] for one in theirs] == ["toy", "kokoro"]
    assert all(one["can_do_text_to_speech"] for one in theirs)
    assert theirs[0]["languages"] == [{"language_id": "en", "name": "en"}]


@pytest.mark.parametrize("kind", ["stream-input", "multi-stream-input"])
def test_a_voice_that_is_not_there_is_refused_at_the_handshake(
    server: httpx.Client, kind: str
) -> None:
    status, error = refused(server, f"/v1/text-to-speech/nobody/{kind}", subprotocols=None)
    assert (status, error["code"]) == (404, "voice_not_found")


def test_a_voice_that_is_not_there_is_refused_when_a_response_is_created(
    server: httpx.Client,
) -> None:
    with live(server) as session:
        session.send("response.create", voice="nobody")
        error = session.until("error")["error"]
        assert (error["param"], error["code"]) == ("voice", "voice_not_found")
        assert session.say("Hi.", voice="toy", max_duration_s=0.2)["finish_reason"] != "error"
