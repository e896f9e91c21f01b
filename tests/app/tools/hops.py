"""Follow one request through the interpreter: every file and function of ours that it enters.

    python -m tests.app.tools.hops [--functions]

A server with the toy model speaks a plain ``POST /tts`` in this process, audio stage included,
after one that is not counted. A profile function (`sys.setprofile`) in every thread notes each
Python function that is called from the request to its answer. Counted are files under ``app`` and
``samplers``: what lies before ``models``. The workers' threads never rest, so what their loops call
while they wait is counted too.
"""

import argparse
import tempfile
import threading
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

from app.main import create_app
from app.settings import Settings
from tests.app.tools.serving import served
from tests.conftest import ROOT
from tests.toy.make_toy import make

PACKAGES = ("app", "samplers")
FORWARD = {"Valle.embed_response", "Valle.logits", "Transformer.extend", "Transformer.step"}
"""Functions of `models` in which a forward pass of the language model begins."""


class Hops:
    """Files and qualified names of the functions that threads enter while it records."""

    def __init__(self) -> None:
        self.recording = False
        self.functions: set[tuple[str, str]] = set()
        self.before_model = 0  # files before the first forward pass

    @property
    def files(self) -> set[str]:
        return {file for file, _ in self.functions}

    def note(self, frame: FrameType, event: str, _: Any) -> None:
        """Note an event of the interpreter; see `sys.setprofile`."""
        if not self.recording or event != "call":
            return
        name, path = frame.f_code.co_qualname, frame.f_code.co_filename
        if name in FORWARD and not self.before_model:
            self.before_model = len(self.files)
        file = path.removeprefix(f"{ROOT}/")
        if file != path and file.split("/")[0] in PACKAGES and name != "<module>":
            self.functions.add((file, name))


def follow(text: str = "Hello there.") -> Hops:
    """Return what one request passes through."""
    hops = Hops()
    threading.setprofile(hops.note)
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(
            model=str(make(Path(folder) / "toy")),
            device="cpu",
            voices=folder,
            voice_process=False,
            text_process=False,
        )
        with served(create_app(settings)) as client:
            for hops.recording in (False, True):
                client.post("/tts", json={"input": text, "seed": 1}).raise_for_status()
            hops.recording = False
    threading.setprofile(None)
    return hops


def main() -> None:
    """Print a table of packages."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--functions", action="store_true", help="list them all")
    functions = parser.parse_args().functions
    hops = follow()
    files = Counter(file.rpartition("/")[0] for file in hops.files)
    entered = Counter(file.rpartition("/")[0] for file, _ in hops.functions)
    print(f"{'package':32} files functions")
    for package in sorted(files):
        print(f"{package:32} {files[package]:5} {entered[package]:9}")
    print(f"{'all':32} {files.total():5} {entered.total():9}")
    print(f"{'before the first forward pass':32} {hops.before_model:5}")
    if functions:
        print(*(f"{file}: {name}" for file, name in sorted(hops.functions)), sep="\n")


if __name__ == "__main__":
    main()
