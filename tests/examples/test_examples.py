"""The clients in examples/ as their readers run them, against a live server."""

import ast
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import soundfile

from app.main import create_app
from app.settings import Settings
from tests.app.tools.serving import served
from tests.conftest import ROOT
from tests.toy.make_toy import make_speaking

TEXT = "Hello there. This is it."


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    speaking = make_speaking(tmp_path_factory.mktemp("speaking"))
    with served(create_app(Settings(**speaking, device="cpu"))) as client:
        yield client


def run(name: str, *words: str, text: str = "") -> str:
    command = [sys.executable, "-W", "error", str(ROOT / "examples" / name), *words]
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    return done.stdout


def address(server: httpx.Client, scheme: str) -> str:
    return str(server.base_url.copy_with(scheme=scheme)).rstrip("/")


@pytest.mark.slow
def test_speak(server: httpx.Client, tmp_path: Path) -> None:
    out = tmp_path / "hello.wav"
    told = run("speak.py", TEXT, str(out), address(server, "http"))
    assert told.startswith(f"{soundfile.info(out).duration:.2f} s, seed ")


@pytest.mark.slow
def test_stream(server: httpx.Client, tmp_path: Path) -> None:
    out = tmp_path / "hello.pcm"
    run("stream.py", TEXT, str(out), address(server, "http"))
    assert out.stat().st_size > 2 * 24_000 / 10


@pytest.mark.slow
def test_live(server: httpx.Client, tmp_path: Path) -> None:
    out = tmp_path / "hello.pcm"
    told = run("live.py", str(out), address(server, "ws"), text=TEXT.replace(". ", ".\n"))
    assert told.startswith(f"{out.stat().st_size / 2 / 24_000:.2f} s")


def test_barge_in(server: httpx.Client) -> None:
    told = run("barge_in.py", "One long sentence. " * 5, "Short.", address(server, "ws"))
    first, second = told.splitlines()
    assert first.startswith("cancelled after ")
    assert not second.startswith(("cancelled", "error"))


PROGRAMS = sorted((ROOT / "examples").glob("*.py"))
FRAMEWORKS = sorted((ROOT / "examples/frameworks").glob("*.py"))


@pytest.mark.parametrize("program", FRAMEWORKS, ids=lambda p: p.name)
def test_an_example_of_a_framework_says_in_a_line_what_to_install(program: Path) -> None:
    alone = [sys.executable, "-I", "-S", str(program), TEXT, "hello.wav"]
    done = subprocess.run(alone, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert "pip install " in line


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.name)
def test_an_example_says_how_it_is_run_where_it_is_not_told_enough(program: Path) -> None:
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True)
    assert done.returncode == 1
    assert f"python examples/{program.name} " in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.name)
def test_an_example_says_in_a_sentence_that_no_server_answers(
    program: Path, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        nobody = f"127.0.0.1:{taken.getsockname()[1]}"
    out = str(tmp_path / "out")
    words = {
        "live.py": [out, f"ws://{nobody}"],
        "barge_in.py": ["A.", "B.", f"ws://{nobody}"],
    }.get(program.name, ["Hi.", out, f"http://{nobody}"])
    command = [sys.executable, str(program), *words]
    done = subprocess.run(command, input="", capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("no server answers")


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.name)
def test_an_example_needs_nothing_that_the_service_does_not(program: Path) -> None:
    roots = set()
    for node in ast.walk(ast.parse(program.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            roots |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            roots.add((node.module or "").partition(".")[0])
    assert roots - sys.stdlib_module_names <= {"websockets"}
    if "websockets" not in roots:
        assert "Needs Python alone." in program.read_text("utf-8")


def test_a_refusal_is_its_sentence(server: httpx.Client, tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "examples" / "speak.py"), "", str(tmp_path / "a.wav")]
    done = subprocess.run(
        [*command, address(server, "http")], capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("program", sorted((ROOT / "examples").glob("*.py")), ids=lambda p: p.name)
def test_an_example_is_short_and_has_a_test(program: Path) -> None:
    assert len(program.read_text(encoding="utf-8").splitlines()) <= 52
    assert f"def test_{program.stem}(" in Path(__file__).read_text(encoding="utf-8")
