"""Pronunciation dictionaries of a request and of the operator, over HTTP."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.compat.elevenlabs.speech import dictionaries_of
from app.engine.errors import InvalidRequest
from app.main import create_app
from app.settings import Settings
from app.storage.dictionary_files import DictionaryError, read_dictionaries
from tests.app.tools.serving import served

FILES = {
    "default.json": {"SQL": "sequel", "data": "dayta"},
    "Medicine.json": {"data": "findings", "BP": "blood pressure"},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dictionaries")
    for name, entries in FILES.items():
        (folder / name).write_text(json.dumps(entries), "utf-8")
    return folder


@pytest.fixture(scope="module")
def client(toy, folder, tmp_path_factory):
    voices = str(tmp_path_factory.mktemp("voices"))
    settings = Settings(
        model=str(toy), device="cpu", voices=voices, pronunciations=str(folder), text_process=True
    )
    with served(create_app(settings)) as client:
        yield client


def read(client: httpx.Client, text: str, **fields: Any) -> str:
    answer = client.post("/v1/audio/phonemes", json={"input": text, **fields})
    assert answer.status_code == 200, answer.text
    return " ".join(one["text"] for one in answer.json()["utterances"])


@pytest.mark.slow
def test_the_request_goes_before_the_dictionaries_that_it_names(client) -> None:
    text = "SQL data, BP."
    assert read(client, text) == "sequel dayta, BP."
    assert read(client, text, dictionaries=["medicine"]) == "sequel findings, blood pressure."
    own = {"data": "numbers"}
    assert read(client, text, dictionaries=["Medicine"], pronunciations=own) == (
        "sequel numbers, blood pressure."
    )


def test_codes_of_a_text_are_those_of_what_is_spoken_for_it(client) -> None:
    wanted = {"seed": 7, "max_duration_s": 1.0}
    answers = [
        client.post("/tts", json={"input": "A SQL.", **wanted}),
        client.post("/tts", json={"input": "A sequel.", **wanted}),
        client.post(
            "/tts", json={"input": "A foo.", "pronunciations": {"foo": "sequel"}, **wanted}
        ),
    ]
    assert len({one.headers["x-codes-sha256"] for one in answers}) == 1


@pytest.mark.parametrize("content", ["[]", '{"a": 1}', "no json"])
def test_a_file_that_is_no_dictionary_is_refused_at_the_start(tmp_path, content) -> None:
    file = tmp_path / "words.json"
    file.write_text(content, "utf-8")
    with pytest.raises(DictionaryError, match=r"words\.json"):
        create_app(Settings(pronunciations=str(file)))


def test_a_single_file_is_for_every_request(folder) -> None:
    assert read_dictionaries(str(folder / "Medicine.json")) == {"default": FILES["Medicine.json"]}
    assert read_dictionaries("") == {}


def test_locators_of_elevenlabs_name_dictionaries() -> None:
    located = [{"pronunciation_dictionary_id": "medicine", "version_id": "3"}]
    assert dictionaries_of(located) == ("medicine",)
    with pytest.raises(InvalidRequest, match="pronunciation_dictionary_id"):
        dictionaries_of(["medicine"])
