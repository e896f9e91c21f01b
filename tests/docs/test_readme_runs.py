"""What the README tells a reader to type works."""

import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import soundfile

from app.main import create_app
from app.settings import BUILTIN_MODEL, Settings
from models.voices.voice import BuiltinVoices
from tests.conftest import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
ADDRESS = "127.0.0.1:8000"

pytestmark = pytest.mark.weights


def _block(language: str, containing: str) -> str:
    blocks = re.findall(rf"^```{language}\n(.*?)^```$", README, flags=re.MULTILINE | re.DOTALL)
    (found,) = [block for block in blocks if containing in block]
    assert isinstance(found, str)
    return found


def _voice() -> str:
    named = re.search(r'voice="(\w+)"', _block("python", "openai"))
    assert named
    return named[1]


@pytest.fixture(scope="module")
def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT), "NO_PROXY": "127.0.0.1"}


@pytest.fixture(scope="module")
def address(environment: dict[str, str]) -> Iterator[str]:
    """Where a server answers."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "app", "serve", "--port", str(port)]
    with subprocess.Popen(command, env=environment) as server:
        try:
            _wait_until_ready(f"http://127.0.0.1:{port}/ready", server)
            yield f"127.0.0.1:{port}"
        finally:
            server.terminate()
            server.wait(30)


def _wait_until_ready(url: str, server: subprocess.Popen[bytes]) -> None:
    for _ in range(600):
        assert server.poll() is None, "the server ended"
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except urllib.error.URLError:
            time.sleep(0.1)
    pytest.fail("the server did not get ready within a minute")


def _is_speech(file: Path) -> bool:
    return bool(soundfile.info(file).format == "WAV" and soundfile.info(file).frames > 0)


def test_curl_gives_a_wav(address: str, tmp_path: Path) -> None:
    if shutil.which("curl") is None:
        pytest.skip("no curl")
    command = _block("sh", "curl").replace(ADDRESS, address)
    subprocess.run(["bash", "-euc", command], cwd=tmp_path, check=True, timeout=120)
    assert _is_speech(tmp_path / "hello.wav")


def test_openai_client_gives_a_wav(
    address: str, environment: dict[str, str], tmp_path: Path
) -> None:
    program = _block("python", "openai").replace(ADDRESS, address)
    command = [sys.executable, "-c", program]
    subprocess.run(command, cwd=tmp_path, env=environment, check=True, timeout=120)
    assert _is_speech(tmp_path / "hello.wav")


@pytest.mark.slow
def test_command_line_gives_a_wav(environment: dict[str, str], tmp_path: Path) -> None:
    program, *words = shlex.split(_block("sh", "valle-serve speak"))
    assert program == ".venv/bin/valle-serve"
    command = [sys.executable, "-m", "app", *words]
    subprocess.run(command, cwd=tmp_path, env=environment, check=True, timeout=120)
    assert _is_speech(tmp_path / "hello.wav")


def test_endpoints_are_those_of_the_application() -> None:
    told = set(re.findall(r"^\| `(GET|POST|DELETE) (/[\w/{}-]+)` \|", README, flags=re.MULTILINE))
    paths = create_app(Settings()).openapi()["paths"]
    routes = {(method.upper(), path) for path, methods in paths.items() for method in methods}
    assert told == routes | {("GET", "/docs"), ("GET", "/studio")}


def test_voice_is_one_that_the_built_in_model_has() -> None:
    assert _voice() in BuiltinVoices(BUILTIN_MODEL / "voices")
