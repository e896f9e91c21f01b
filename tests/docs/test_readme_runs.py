"""What the README tells a reader to type works; docs/api.md names every endpoint."""

import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import soundfile

from app.main import create_app
from app.settings import BUILTIN_MODEL, Settings
from models.voices.voice import BuiltinVoices
from tests.app.tools.serving import served
from tests.conftest import ROOT
from tests.docs.pages import ADDRESS, blocks, run

pytestmark = pytest.mark.weights


def _block(language: str, containing: str) -> str:
    (found,) = (block for block in blocks("README.md", language) if containing in block)
    return found


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Where a server answers."""
    with served(create_app(Settings())) as client:
        yield f"127.0.0.1:{client.base_url.port}"


def _is_speech(file: Path) -> bool:
    return bool(soundfile.info(file).format == "WAV" and soundfile.info(file).frames > 0)


@pytest.mark.slow
def test_curl_gives_a_wav(address: str, tmp_path: Path) -> None:
    if shutil.which("curl") is None:
        pytest.skip("no curl")
    run(["bash", "-euc", _block("sh", "curl").replace(ADDRESS, address)], tmp_path)
    assert _is_speech(tmp_path / "hello.wav")


@pytest.mark.slow
def test_openai_client_gives_a_wav(address: str, tmp_path: Path) -> None:
    program = _block("python", "openai").replace(ADDRESS, address)
    run([sys.executable, "-c", program], tmp_path)
    assert _is_speech(tmp_path / "hello.wav")


@pytest.mark.slow
def test_command_line_gives_a_wav(tmp_path: Path) -> None:
    program, *words = shlex.split(_block("sh", "valle-serve speak"))
    assert program == ".venv/bin/valle-serve"
    run([sys.executable, "-m", "app", *words], tmp_path)
    assert _is_speech(tmp_path / "hello.wav")


def test_endpoints_are_those_of_the_application() -> None:
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    told = set(re.findall(r"^\| `(GET|POST|DELETE) (/[\w/{}-]+)` \|", page, flags=re.MULTILINE))
    paths = create_app(Settings()).openapi()["paths"]
    routes = {(method.upper(), path) for path, methods in paths.items() for method in methods}
    assert told == routes | {("GET", "/docs"), ("GET", "/studio")}


def test_voice_is_one_that_the_built_in_model_has() -> None:
    (named,) = re.findall(r'voice="(\w+)"', _block("python", "openai"))
    assert named in BuiltinVoices(BUILTIN_MODEL / "voices")
