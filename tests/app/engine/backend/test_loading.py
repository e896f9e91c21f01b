"""A hub that does not answer is asked again, for a while; what it refuses is not."""

from pathlib import Path

import pytest
import torch

from app.engine.backend import loading
from models.checkpoints import SpeechModel, open_speech_model
from models.checkpoints.download import DownloadError, Unreachable


@pytest.fixture
def waited(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    waits: list[float] = []
    monkeypatch.setattr(loading, "sleep", waits.append)
    return waits


def load(toy: Path) -> SpeechModel:
    return loading.load_speech(
        toy,
        torch.device("cpu"),
        weights="float32",
        decoder="codec",
        threads=1,
        cache=Path("/nowhere"),
        offline=True,
    )


def test_what_comes_back_after_a_while_is_waited_for(
    toy: Path, waited: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    real, tries = open_speech_model, []

    def flaky(*arguments: object, **named: object) -> SpeechModel:
        tries.append(arguments)
        if len(tries) < 3:
            raise Unreachable("the network failed")
        return real(*arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(loading, "open_speech_model", flaky)
    assert load(toy).model
    assert waited == list(loading._RETRIES_S[:2])


@pytest.mark.parametrize(
    ("error", "waits"), [(Unreachable("no"), len(loading._RETRIES_S)), (DownloadError("no"), 0)]
)
def test_it_is_given_up_in_the_end(
    toy: Path,
    waited: list[float],
    monkeypatch: pytest.MonkeyPatch,
    error: DownloadError,
    waits: int,
) -> None:
    def broken(*_: object, **__: object) -> SpeechModel:
        raise error

    monkeypatch.setattr(loading, "open_speech_model", broken)
    with pytest.raises(DownloadError, match="no"):
        load(toy)
    assert len(waited) == waits
    assert sum(waited) < 15  # a stop waits for it
