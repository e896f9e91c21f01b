"""Pages as their readers take them: the blocks that they type, and where they type them."""

import os
import re
import subprocess
from pathlib import Path

from tests.conftest import ROOT

ADDRESS = "127.0.0.1:8000"
"""Where the pages have a server."""


def blocks(page: str, language: str = "") -> list[str]:
    """Return what stands in the fences of a page of the root that name a language."""
    text = (ROOT / page).read_text("utf-8")
    found = re.findall(r"^```(\w*)\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    return [block for tongue, block in found if tongue == language]


def run(
    command: list[str],
    folder: Path,
    *,
    home: Path = ROOT,
    model: Path | None = None,
    typed: str = "",
    status: int = 0,
) -> str:
    """Run a command in a folder with the packages of a checkout; return what it printed."""
    variables = {"PYTHONPATH": str(home), "NO_PROXY": "127.0.0.1", "TTS_DEVICE": "cpu"}
    if model is not None:  # in 8 bits a copy of the sources would compile its kernels anew
        variables |= {"TTS_MODEL": str(model), "TTS_WEIGHTS": "float32"}
        variables |= {"TTS_VOICES": str(folder / "voices")}
    done = subprocess.run(
        command,
        cwd=folder,
        env=os.environ | variables,
        input=typed,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout
