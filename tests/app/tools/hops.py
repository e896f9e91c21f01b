"""Follow one request through the interpreter: every file and function of ours that it enters.

    python tests/app/tools/hops.py [--checkout ../valle-before] [--functions]

A server with the toy model speaks a plain ``POST /tts`` in this process, sound stage included,
after one that is not counted. A profile function (`sys.setprofile`) in every thread notes each
Python function that is called from the request to its answer. Counted are files under ``app`` and
``samplers``: what lies before ``models``. The workers' threads never rest, so what their loops call
while they wait is counted too.
"""

import argparse
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

PACKAGES = ("app", "samplers")
FORWARD = (
    "Valle.embed_response",
    "Valle.logits",
    "Transformer.extend",
    "Transformer.step",
)
"""Functions of `models` in which a forward pass of the language model begins."""


class Function(NamedTuple):
    """A function of ours: its file, relative to the checkout, and its qualified name."""

    file: str
    name: str


class Hops:
    """Records the calls of all threads that are started after it is installed."""

    def __init__(self, root: Path) -> None:
        """Record nothing yet.

        Args:
            root: Of the checkout; calls into other files are not recorded.
        """
        self._root = f"{root}/"
        self._names: dict[CodeType, Function | None] = {}
        self.recording = False
        self.calls: Counter[Function] = Counter()
        self.before_model: frozenset[str] = frozenset()

    def install(self) -> None:
        """Record in this thread and in those that start from now on."""
        threading.setprofile(self.note)
        sys.setprofile(self.note)

    def remove(self) -> None:
        """Record nothing more in this thread, nor in those that start from now on."""
        threading.setprofile(None)
        sys.setprofile(None)

    def note(self, frame: FrameType, event: str, _: Any) -> None:
        """Note an event of the interpreter; see `sys.setprofile`."""
        if not self.recording or event != "call":
            return
        function = self._function(frame.f_code)
        if function is None:
            if not self.before_model and frame.f_code.co_qualname in FORWARD:
                self.before_model = frozenset(self.files)
            return
        self.calls[function] += 1

    def _function(self, code: CodeType) -> Function | None:
        if code not in self._names:
            path = code.co_filename
            ours = path.startswith(self._root) and code.co_qualname != "<module>"
            file = path.removeprefix(self._root)
            found = ours and file.split("/")[0] in PACKAGES
            self._names[code] = Function(file, code.co_qualname) if found else None
        return self._names[code]

    @property
    def files(self) -> list[str]:
        """The files entered."""
        return sorted({function.file for function in self.calls})


def follow(root: Path, text: str = "Hello there.") -> Hops:
    """Return what one request passes through.

    Args:
        root: The checkout whose `app` is imported; the first on `sys.path`.
        text: What is spoken.
    """
    import httpx
    import uvicorn

    from app.main import create_app
    from app.settings import Settings
    from tests.toy.make_toy import make

    hops = Hops(root)
    hops.install()
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(
            model=str(make(Path(folder) / "toy")),
            device="cpu",
            voices=folder,
            port=0,
            voice_process=False,
            text_process=False,
        )
        config = uvicorn.Config(create_app(settings), port=0, log_config=None, access_log=False)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run)
        thread.start()
        try:
            while not server.started:
                threading.Event().wait(0.01)
            port = server.servers[0].sockets[0].getsockname()[1]
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
                while client.get("/ready").status_code != 200:
                    threading.Event().wait(0.02)
                for recording in (False, True):
                    hops.recording = recording
                    client.post("/tts", json={"input": text, "seed": 1}).raise_for_status()
                hops.recording = False
        finally:
            hops.remove()
            server.should_exit = True
            thread.join()
    return hops


def table(hops: Hops) -> list[tuple[str, int, int]]:
    """Return rows of package, files and functions entered, the packages in order."""
    packages = sorted({function.file.rpartition("/")[0] for function in hops.calls})
    return [
        (
            package,
            sum(file.rpartition("/")[0] == package for file in hops.files),
            sum(function.file.rpartition("/")[0] == package for function in hops.calls),
        )
        for package in packages
    ]


def main() -> None:
    """Print the table of a checkout."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--checkout", type=Path, default=Path())
    parser.add_argument("--functions", action="store_true", help="list them all")
    args = parser.parse_args()
    root = args.checkout.resolve()
    sys.path.insert(0, str(root))
    hops = follow(root)
    print(f"{'package':32} files functions")
    for package, files, functions in table(hops):
        print(f"{package:32} {files:5} {functions:9}")
    print(f"{'all before models':32} {len(hops.files):5} {len(hops.calls):9}")
    print(f"{'before the first forward pass':32} {len(hops.before_model):5}")
    if args.functions:
        print(*(f"{one.file}: {one.name}" for one in sorted(hops.calls)), sep="\n")


if __name__ == "__main__":
    main()
