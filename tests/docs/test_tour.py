"""docs/tour.md can be taken: its breakpoints are hit in order, and its change does what it says."""

import json
import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest

from scripts.follow import STOPS
from tests.conftest import ROOT
from tests.docs.pages import blocks, run
from tests.toy.make_toy import make

PAGE = (ROOT / "docs" / "tour.md").read_text("utf-8")
ROWS = re.findall(r"^\| (\d+) \| `([\w/]+\.py)` \| `([\w.]+)` \| ([\w ]+) \|", PAGE, re.MULTILINE)
LOOKS = re.findall(r"^\| \d+ \|(?:[^|]*\|){3}([^|]*)\|", PAGE, re.MULTILINE)
TYPED = [re.findall(r"`(u|p [^`]+)`", look) for look in LOOKS]
"""What the page has a reader type at each stop to look at something."""
CHANGED = "samplers/ops/filters.py"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("toy"))


def test_the_table_is_that_of_the_debugger() -> None:
    assert [(file, name) for _, file, name, _ in ROWS] == list(STOPS)
    assert [int(number) for number, *_ in ROWS] == list(range(1, len(STOPS) + 1))


@pytest.mark.slow
def test_every_breakpoint_is_hit_in_its_order_and_thread_and_shows_what_the_page_tells(
    model: Path, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "scripts.follow"]
    typed = "".join("\n".join([*looks, "c\n"]) for looks in TYPED)
    out = run(command, tmp_path, model=model, typed=typed)
    assert [line for line in out.splitlines() if "***" in line] == []
    assert len([one for looks in TYPED for one in looks if one.startswith("p ")]) >= 8
    hit = re.findall(r"stop (\d+) of \d+: (\S+) (\S+), thread (\S+)", out)
    assert [(file, name) for _, file, name, _ in hit] == list(STOPS)
    threads = {told: thread for (*_, told), (*_, thread) in zip(ROWS, hit, strict=True)}
    told = [told for *_, told in ROWS]
    assert [threads[one] for one in told] == [thread for *_, thread in hit]
    assert len(set(threads.values())) == len(threads)
    assert out.splitlines()[-1].endswith("audio/wav")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of what a change of a sampler concerns, with the change of the page made."""
    home = tmp_path / "checkout"
    for folder in (
        "app",
        "cpu",
        "gpu",
        "samplers",
        "models",
        "tests/samplers",
        "tests/golden",
        "tests/toy",
    ):
        shutil.copytree(ROOT / folder, home / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("tests/__init__.py", "tests/conftest.py", "tests/fixtures.py", "pyproject.toml"):
        shutil.copy(ROOT / file, home / file)
    (diff,) = re.findall(r"^```diff\n-(.*)\n\+(.*)\n```$", PAGE, flags=re.MULTILINE)
    changed = home / CHANGED
    assert f"`{CHANGED}`" in PAGE
    source = changed.read_text("utf-8")
    function = source.index("def top_p_floor")
    assert source.count(diff[0], function) >= 1
    changed.write_text(source[:function] + source[function:].replace(diff[0], diff[1], 1), "utf-8")
    return home


def _kept(home: Path, cwd: Path, model: Path) -> float:
    """Return what the second command prints after the first."""
    (block,) = (one for one in blocks("docs/tour.md", "sh") if "--trace" in one)
    printed = ""
    for line in block.splitlines():
        program, *words = shlex.split(line)
        module = ["-m", "app"] if program.endswith("valle-serve") else []
        printed = run([sys.executable, *module, *words], cwd, home=home, model=model)
    assert (
        json.loads((cwd / "hello.wav.json").read_text("utf-8"))["request"]["params"]["top_p"] == 0.5
    )
    return float(printed.removesuffix(" codes kept\n"))


@pytest.mark.slow
def test_the_change_shows_in_the_trace_and_fails_its_test(
    model: Path, checkout: Path, tmp_path: Path
) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    for folder in (before, after):
        folder.mkdir()
    assert _kept(checkout, after, model) < _kept(ROOT, before, model)
    (test,) = re.findall(r"^scripts/test (\S+)$", PAGE, flags=re.MULTILINE)
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", test]
    assert "FAILED" in run(command, checkout, home=checkout, model=model, status=1)
