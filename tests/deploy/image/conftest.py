"""The image, built and run by an engine of Docker: `scripts/test --docker`.

`DOCKER_BUILD` has further words for `docker build`, as ``--network host`` where containers reach no
network otherwise, and `TORCH_INDEX_URL` is passed on.
"""

import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import httpx
import pytest

from tests.conftest import ROOT
from tests.deploy.container_files import text

WANTED = "DOCKER" in os.environ
MEASURED: list[tuple[str, str]] = []
"""Rows of the table that is printed at the end."""


def docker(*words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run a command of Docker's and return what it said."""
    done = subprocess.run(["docker", *words], capture_output=True, text=True, cwd=ROOT)
    assert not check or done.returncode == 0, done.stdout + done.stderr
    return done


class Image:
    """The image of a folder, for a CPU.

    Attributes:
        name: Its tag.
        seconds: What building it took.
        layers: Digests, from the base on.
    """

    def __init__(self, folder: Path, name: str) -> None:
        words = shlex.split(os.environ.get("DOCKER_BUILD", ""))
        index = os.environ.get("TORCH_INDEX_URL", "")
        argument = f"--build-arg=TORCH_INDEX_URL={index}"
        began_s = time.monotonic()
        docker("build", "--target", "cpu", "--tag", name, argument, *words, str(folder))
        self.name, self.seconds = name, time.monotonic() - began_s
        told = docker("image", "inspect", "--format", "{{json .RootFS.Layers}}", name).stdout
        self.layers: list[str] = json.loads(told)

    def last_bytes(self, count: int) -> int:
        """Return the size of the last layers."""
        told = docker("history", "--human=false", "--format", "{{.Size}}", self.name).stdout
        return sum([int(size) for size in told.split() if int(size)][:count])


class Container:
    """A container of the image on the host's network, on a port of its own."""

    def __init__(self, image: str, *words: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            port = probe.getsockname()[1]
        self.name = f"valle-{uuid4().hex[:8]}"
        self.client = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=120)
        address = ["--env", "TTS_HOST=127.0.0.1", "--env", f"TTS_PORT={port}"]
        start = ["run", "--detach", "--name", self.name, "--network", "host"]
        docker(*start, *words, *address, image)

    def inspect(self, what: str) -> str:
        """Return a field of `docker inspect`."""
        return docker("inspect", "--format", what, self.name).stdout.strip()

    def log(self) -> str:
        """Return what it logged."""
        done = docker("logs", self.name)
        return done.stdout + done.stderr

    def until_ready(self) -> None:
        """Wait for it; pytest ends what takes too long."""
        while self.inspect("{{.State.Running}}") == "true":
            try:
                if self.client.get("/ready").status_code == 200:
                    return
            except httpx.TransportError:
                pass
            time.sleep(0.1)
        raise AssertionError(self.log())

    def ended(self) -> tuple[int, str]:
        """Wait until it has ended; return its status and log."""
        return int(docker("wait", self.name).stdout), self.log()

    def remove(self) -> None:
        """Remove it and its volumes."""
        self.client.close()
        docker("rm", "--force", "--volumes", self.name)


class Containers:
    """Containers that end with a test."""

    def __init__(self, image: str) -> None:
        self._image = image
        self._started: list[Container] = []

    def run(self, *words: str) -> Container:
        """Start one; words are those of `docker run`."""
        self._started.append(Container(self._image, *words))
        return self._started[-1]

    def remove(self) -> None:
        """Remove all."""
        for one in self._started:
            one.remove()


def words_of_the_page() -> list[str]:
    """Return what docs/gpu-host.md gives `docker run`, less the GPU, the port and the volumes."""
    found = re.search(
        r"^docker run (--gpus (?:.|\n)*?) valle-serve:cuda$", text("docs/gpu-host.md"), re.M
    )
    assert found
    words = shlex.split(found[1].replace("\\\n", " "))
    for flag in ("--gpus", "-p", "-v", "-v"):
        place = words.index(flag)
        del words[place : place + 2]
    return words


@pytest.fixture(scope="session")
def context(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what is built from, to edit."""
    folder = tmp_path_factory.mktemp("context")
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    for name in listed.split("\0"):
        if name and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    return folder


@pytest.fixture(scope="session")
def image(context: Path) -> Image:
    built = Image(context, f"valle-serve:test-{uuid4().hex[:8]}")
    MEASURED.append(("build with what the builder kept", f"{built.seconds:.1f} s"))
    return built


@pytest.fixture
def containers(image: Image) -> Iterator[Containers]:
    started = Containers(image.name)
    try:
        yield started
    finally:
        started.remove()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave these tests to those who ask for them: they take minutes and an engine."""
    for item in items:
        if not WANTED and Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.skip(reason="scripts/test --docker runs it"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the table."""
    for what, value in MEASURED:
        terminalreporter.write_line(f"| {what} | {value} |")
