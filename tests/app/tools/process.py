"""A whole process that serves a fake, for what only a process shows: its signals and its log."""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from app import logs
from app.main import create_app
from app.server import serve
from app.settings import Settings
from tests.app.tools.serving import free_port, until
from tests.fakes import FakeBackend, fake_engine

ROOT = Path(__file__).resolve().parents[3]
CHUNK_S = 0.1


class Served:
    """The process, a client of it, and its log so far."""

    def __init__(self, process: subprocess.Popen[str], client: httpx.Client, log: Path) -> None:
        self.process, self.client, self._log = process, client, log

    @property
    def log(self) -> list[str]:
        return self._log.read_text().splitlines()

    def let(self, frames: int) -> None:
        """Let a text with "wait" in it be spoken a little further."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{frames}\n")
        self.process.stdin.flush()

    def until_gone(self) -> int:
        return self.process.wait(timeout=60)


@contextmanager
def process(folder: Path, **settings: object) -> Iterator[Served]:
    """Serve in a process of its own until the end of the block."""
    port = free_port()
    settings = {"slots": 1} | settings
    chosen = {f"TTS_{name.upper()}": str(value) for name, value in settings.items()}
    environment = os.environ | chosen | {"TTS_PORT": str(port)}
    log = folder / "log"
    with (
        log.open("w") as lines,
        subprocess.Popen(
            [sys.executable, "-m", "tests.app.tools.process"],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stderr=lines,
            text=True,
        ) as running,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client,
    ):
        served = Served(running, client, log)
        try:
            until(lambda: _answers(served))
            yield served
        finally:
            running.kill()


def _answers(served: Served) -> bool:
    assert served.process.poll() is None, served.log
    try:
        return served.client.get("/ready").status_code == 200
    except httpx.ConnectError:
        return False


def main() -> None:
    settings = Settings()
    logs.configure(settings.log_level, settings.log_format)
    speaking = FakeBackend(CHUNK_S)

    def obey() -> None:
        for line in sys.stdin:
            speaking.let(int(line))

    threading.Thread(target=obey, daemon=True).start()
    if not serve(create_app(settings, fake_engine(speaking, slots=settings.slots)), settings):
        sys.exit(1)


if __name__ == "__main__":
    main()
