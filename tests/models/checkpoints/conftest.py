"""What tests of downloads start from: a hub of their own, and no proxy or token of the shell."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.models.checkpoints.hub_server import Hub, serve_hub


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    """A hub without files."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(tmp_path / "no-token"))
    with serve_hub() as hub:
        yield hub
