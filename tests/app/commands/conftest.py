from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def toy_in_process(monkeypatch: pytest.MonkeyPatch, toy: Path) -> None:
    """Let every command load the toy model where it loads any."""
    monkeypatch.setenv("TTS_MODEL", str(toy))
    monkeypatch.setenv("TTS_DEVICE", "cpu")
