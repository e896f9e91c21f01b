"""Every command that a page tells a reader to type is run by a test, or cannot be run here.

A command that is in none of the tables fails: whoever writes one decides where it is tried.
"""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.cli import main
from app.main import create_app
from app.settings import Settings
from tests.app.commands.speech.documents.books import epub3
from tests.app.tools.serving import served
from tests.conftest import ROOT
from tests.docs.pages import ADDRESS, blocks
from tests.speech_like import packed, speech_like
from tests.toy.make_public import make_public
from tests.toy.make_toy import make

pytestmark = pytest.mark.slow

PAGES = ["README.md", "CONTRIBUTING.md", *sorted(f"docs/{p.name}" for p in ROOT.glob("docs/*.md"))]

HERE = {
    'valle-serve speak "Hello there." -o hello.wav',
    'valle-serve speak "Hello there." --seed 7 -o hello.wav',
    'valle-serve speak "Hello there." -o hello.mp3',
    "valle-serve speak --file book.txt -o book.mp3",
    "valle-serve speak book.txt -o book.mp3",
    "valle-serve speak book.epub -o book.m4b",
    "TTS_PRONUNCIATIONS=names.json valle-serve speak book.epub -o book.m4b",
    "valle-serve speak book.epub -o book.m4b --loudness-lufs -16 --seed 7",
    'valle-serve speak "Hello there." --play',
    'valle-serve speak "Hello there." --url http://127.0.0.1:8000 -o hello.mp3',
    'valle-serve speak "Hello there." --url http://127.0.0.1:8000 -o hello.wav',
    'valle-serve speak "Hello there." --mirostat-mode 2 --sampler-order hf -o hello.wav',
    "valle-serve speak letter.txt -o letter.opus --speed 1.1 --seed 7",
    "fortune | valle-serve speak - -o fortune.mp3",
    'valle-serve speak "Hello there." -o - | ffplay -nodisp -autoexit -',
    "valle-serve doctor",
    "valle-serve warm",
    "valle-serve bench",
    "valle-serve bench --at-once 1 --at-once 8 --requests 20 -o bench.json",
    "valle-serve bench --url http://127.0.0.1:8000",
    "valle-serve keys new alice",
    "valle-serve tools calibrate --count 200 --output calibrated.json",
    "valle-serve tools inspect ecker/vall-e",
    "valle-serve tools eras ecker/vall-e --codes a.enc --codes b.enc",
    "valle-serve tools convert ecker/vall-e mine --code-sums inclusive",
}
"""Run below, with a toy model."""

SMALLER = {
    # The toy model's stop is as likely as any code: another seed may say nothing at all.
    "valle-serve speak": "valle-serve speak --seed 7",
    "--requests 20": "--requests 1",
    "valle-serve bench": "valle-serve bench --requests 1",
    "--count 200": "--count 2",
    "eras ecker/vall-e --codes a.enc --codes b.enc": "eras public --codes pair.json",
    "convert ecker/vall-e": "convert public",
}
"""What is as quick, or lies here, in place of what is not."""

BY_OTHER_TESTS = {
    "scripts/serve": "tests/app/commands/test_serve.py",
    "valle-serve serve": "tests/app/commands/test_serve.py",
    "curl": "tests/docs/test_readme_runs.py",
    "id=$(curl": "tests/docs/test_commands.py",
    "valle-serve voices": "tests/docs/test_voices_page.py",
    "scripts/check": "scripts/check",
    "scripts/test": "scripts/test",
    "python3 -m pip wheel": "tests/deploy/test_wheel.py",
    "tar -C": "tests/docs/test_upgrade_page.py",
    "mkdir -p ~/.local/share/valle-serve": "tests/docs/test_upgrade_page.py",
    "valle-serve batch": "tests/app/commands/test_batch.py",
    "valle-serve study": "tests/app/commands/study/test_command.py",
    "export RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH": "tests/deploy/ray/test_deployment.py",
    "export RAY_SERVE_PROXY_USE_GRPC": "tests/deploy/ray/test_cluster.py",
    "serve run": "tests/deploy/ray/test_deployment.py",
    "python -m scripts.follow": "tests/docs/test_tour.py",
    "TTS_HOST=0.0.0.0 TTS_WYOMING_PORT=10200 scripts/serve": (
        "tests/app/compat/wyoming/test_session.py"
    ),
    "TTS_LIVE_LOOKAHEAD_WORDS=2 scripts/serve": "tests/app/api/realtime/test_lookahead.py",
    "python -c": "tests/docs/test_tour.py",
    'valle-serve speak "Hello there." --seed 7 --top-p 0.5 --trace': "tests/docs/test_tour.py",
}
"""What a command begins with, and what runs it or what it calls."""

NOT_HERE = {
    'valle-serve speak "Hello there." -o hello.wav --subtitles hello.srt': (
        "the toy model has no head that aligns; tests/app/commands/speech/test_subtitles.py"
    ),
    "valle-serve speak --file book.txt -o book.mp3 --subtitles book.srt": "as above",
    "CUDA_VISIBLE_DEVICES=": "no card; tests/app/commands/test_serve.py runs the rest of it",
    "TTS_DEVICE=cuda scripts/serve": "no card; it is one setting",
    "CARD_0=": "it serves for ever; tests/deploy/test_balancer.py runs it",
    "git pull": "it changes the tree",
    "git checkout ": "tests/docs/test_upgrade_page.py goes back and forward; else docker",
    "git clone": "it asks for an address",
    "apt-get install": "it asks a registry",
    "cd valle-serve": "of what git clone made",
    "helm upgrade": "as below",
    "kubectl exec": "no Kubernetes",
    "helm install": "no Kubernetes; tests/deploy/test_chart.py renders and checks the chart",
    "pip install": "it asks a registry",
    "PYTHONPATH=/tmp/transformers-4.57": "with what pip has fetched",
    "ray start": "half a minute and 600 MB; docs/results/replicas.md has runs",
    "TTS_GPU_MEMORY_UTILIZATION=": "no card; it is one setting",
    "CPUS_0=": "no Docker engine; tests/deploy/test_balancer.py reads the files",
    "docker ": "no Docker engine; tests/deploy and test_host_pages.py read them",
    "TTS_MODEL=ecker/vall-e ": "it fetches 550 MB; tests/models/checkpoints has a hub",
    "TTS_IDLE_TIMEOUT_S=300 scripts/serve": "scripts/serve installs first; it is one setting",
    "python3.13 -m venv .venv && scripts/serve": "scripts/serve installs first",
    "python3 -m venv mcp-env": "tests/clients/test_real_agents.py has such an environment",
    "mcp-env/bin/pip install": "it asks a registry",
    "TTS_MODEL=mine scripts/serve": "scripts/serve installs first; test_sources.py loads such",
    "TTS_PRESETS=calibrated.json scripts/serve": "scripts/serve installs first",
    "valle-serve models download": "it fetches; test_models.py does so from a hub of its own",
    "scripts/install": "it takes minutes and makes an environment",
    "scripts/sbom": "it asks a registry for its tool",
    "git restore samplers": "it undoes what test_tour.py does to a copy",
    "python -m lab.benchmarks.cluster.simulate --plan": "slow; tests/lab/benchmarks/cluster does "
    "the same",
    "python -m lab.benchmarks.card.ticket": "minutes; test_ticket.py does each part",
}


def _joined(block: str) -> list[str]:
    lines = block.replace("\\\n", " ").splitlines()
    return [line.strip() for line in lines if line.strip() and not line.strip().startswith("#")]


def commands() -> Iterator[str]:
    """Yield each command once, as typed but for where the program lies and what it is told of."""
    seen = set()
    for page in PAGES:
        for block in blocks(page, "sh"):
            for line in _joined(block):
                command = re.sub(r"\s{2,}#.*$", "", line).replace(".venv/bin/", "")
                command = re.sub(r"\s+", " ", command)
                if command not in seen:
                    seen.add(command)
                    yield command


@pytest.mark.parametrize("command", list(commands()))
def test_every_command_is_run_or_it_is_said_why_not(command: str) -> None:
    prefixes = [*BY_OTHER_TESTS, *NOT_HERE]
    places = [one for one in prefixes if command.startswith(one)]
    assert (command in HERE) + bool(places) == 1, f"{command}: see the tables of this test"


def test_no_table_tells_of_what_is_on_no_page() -> None:
    told = set(commands())
    assert told >= HERE
    for prefix in (*BY_OTHER_TESTS, *NOT_HERE):
        assert any(command.startswith(prefix) for command in told), prefix
    for place in BY_OTHER_TESTS.values():
        assert (ROOT / place).is_file(), place


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a reader is: with a model, texts, and the programs that commands name."""
    folder = tmp_path_factory.mktemp("reader")
    make(folder / "model")
    make_public(folder / "public", "ar+nar")
    codes = [[(7 * frame + level) % 1024 for level in range(8)] for frame in range(6)]
    (folder / "pair.json").write_text(f'{{"phonemes": "ab äb", "codes": {codes}}}', "utf-8")
    for name in ("book", "letter"):
        (folder / f"{name}.txt").write_text("One. Two.", "utf-8")
    (folder / "names.json").write_text('{"two": "three"}', "utf-8")
    (folder / "book.epub").write_bytes(epub3([("One", "<p>One. Two.</p>"), ("Two", "<p>No.</p>")]))
    (folder / "anna.wav").write_bytes(packed(speech_like(2.0)))
    programs = {
        "valle-serve": f'exec {sys.executable} -m app "$@"',
        "fortune": "echo One.",
        "ffplay": "cat >/dev/null",
        "pw-play": "cat >/dev/null",
    }
    for name, line in programs.items():
        program = folder / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"#!/bin/sh\n{line}\n")
        program.chmod(0o755)
    return folder


@pytest.fixture(scope="module")
def address(folder: Path) -> Iterator[str]:
    settings = Settings(model=str(folder / "model"), device="cpu", voices=str(folder / "voices"))
    with served(create_app(settings)) as client:
        yield f"127.0.0.1:{client.base_url.port}"


@pytest.fixture
def _as_a_reader(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    for name, value in {
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "NO_PROXY": "127.0.0.1",
        "TTS_MODEL": str(folder / "model"),
        "TTS_VOICES": str(folder / "voices"),
        "TTS_PORT": "0",
    }.items():
        monkeypatch.setenv(name, value)


def _in_a_shell(command: str) -> str:
    shell = ["bash", "-euo", "pipefail", "-c", command]
    done = subprocess.run(shell, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


@pytest.mark.parametrize("command", sorted(HERE))
@pytest.mark.usefixtures("_as_a_reader")
def test_a_command_does_what_the_page_tells(
    command: str, folder: Path, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In this process, which has loaded what each takes seconds to load, but for pipes."""
    out = re.search(r" (?:-o|--output) (\S+)", command)
    written = None if out is None or out[1] == "-" else folder / out[1]
    if written is not None:
        written.unlink(missing_ok=True)
    for told, smaller in SMALLER.items():
        if told != "valle-serve bench" or "--requests" not in command:
            command = command.replace(told, smaller)
    command = command.replace(ADDRESS, address)
    program, *words = shlex.split(command)
    while "=" in program:  # a variable of the command
        name, _, value = program.partition("=")
        monkeypatch.setenv(name, value)
        program, *words = words
    if program == "valle-serve" and "|" not in words:
        assert main(words) == 0
    else:
        _in_a_shell(command)
    assert written is None or written.stat().st_size > 50


@pytest.mark.usefixtures("_as_a_reader")
def test_open_webui_sees_the_models_and_voices_that_its_page_names(
    folder: Path, address: str
) -> None:
    if shutil.which("curl") is None:
        pytest.skip("no curl")
    (block,) = blocks("docs/open-webui.md", "sh")
    seen = _in_a_shell(block.replace(ADDRESS, address))
    assert '"alloy"' in seen
    assert '"tts-1"' in seen
    assert (folder / "hello.mp3").read_bytes()[:1] == b"\xff"


@pytest.mark.usefixtures("_as_a_reader")
def test_the_way_to_a_trace_leads_to_one(address: str) -> None:
    if shutil.which("curl") is None:
        pytest.skip("no curl")
    (block,) = (one for one in blocks("docs/trace.md", "sh") if one.startswith("id="))
    assert '"tokens"' in _in_a_shell(block.replace(ADDRESS, address))
