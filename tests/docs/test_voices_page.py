"""What docs/voices.md tells a reader to type works, with the toy model."""

import json
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.api.voices import FILE_FIELDS, VoiceDetail, VoiceForm
from app.engine.voices import OPENAI_VOICES
from app.main import create_app
from app.settings import Settings
from tests.app.tools.serving import served
from tests.conftest import ROOT
from tests.docs.pages import ADDRESS, blocks, run
from tests.speech_like import packed, speech_like
from tests.toy.make_toy import make

NAME = "docs/voices.md"
PAGE = (ROOT / NAME).read_text(encoding="utf-8")


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """A folder with recordings, of models and of voices."""
    for seed, name in enumerate(("anna", "ben")):
        (tmp_path / f"{name}.wav").write_bytes(packed(speech_like(2.0, seed=seed)))
    make(tmp_path / "model")
    return tmp_path


@pytest.fixture
def address(here: Path) -> Iterator[str]:
    settings = Settings(model=str(here / "model"), device="cpu", voices=str(here / "voices"))
    with served(create_app(settings)) as client:
        yield f"127.0.0.1:{client.base_url.port}"


@pytest.mark.slow
def test_what_curl_is_told_to_do_works(address: str, here: Path) -> None:
    if shutil.which("curl") is None:
        pytest.skip("no curl")
    send, look_and_delete = (block for block in blocks(NAME, "sh") if "curl" in block)
    sent = run(["bash", "-euc", send.replace(ADDRESS, address)], here)
    assert json.loads(sent)["id"] == "anna"
    assert "transcript" in json.loads(sent)
    told = run(["bash", "-euc", look_and_delete.replace(ADDRESS, address)], here)
    assert told.endswith('{"object":"audio.voice","id":"anna","deleted":true}')


@pytest.mark.slow
def test_the_openai_package_does_it(address: str, here: Path) -> None:
    (program,) = blocks(NAME, "python")
    run([sys.executable, "-c", program.replace(ADDRESS, address)], here)
    assert (here / "hello.mp3").stat().st_size > 1000


@pytest.mark.slow
def test_the_commands_work(here: Path) -> None:
    (commands,) = (block for block in blocks(NAME, "sh") if "valle-serve" in block)
    command = commands.replace("valle-serve voices", f"{sys.executable} -m app voices")
    told = run(["bash", "-euc", command], here, model=here / "model")
    added, *_, removed = told.splitlines()
    assert added.startswith("anna: 2.0 s")
    assert removed == "anna: deleted"


def test_the_answer_shown_and_the_fields_told_are_those_there_are() -> None:
    (answer,) = blocks(NAME, "json")
    shown = VoiceDetail.model_validate_json(answer)
    assert set(json.loads(answer)) == set(shown.model_dump())
    told = set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\|([^|]*)\|", PAGE, re.MULTILINE))))
    assert told >= set(VoiceForm.model_fields) | set(FILE_FIELDS)
    assert set(OPENAI_VOICES) <= set(re.findall(r"`(\w+)`", PAGE))
