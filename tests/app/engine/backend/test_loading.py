"""A hub that does not answer is asked again; the weights suit the processor."""

import platform
from pathlib import Path
from typing import Literal

import pytest
import torch

from app.engine.backend import loading
from app.engine.backend.synthesizer import Synthesizer
from app.engine.core import ReportOptions, SpeechJob
from app.settings import Settings
from models.checkpoints.files import CheckpointError
from models.checkpoints.hub import DownloadError, Unreachable
from models.checkpoints.sources import SpeechModel, open_speech_model
from models.config import AlignmentHead
from samplers.knobs.params import SamplingParams
from tests.app.tools.serving import settings_of


@pytest.fixture
def waited(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    waits: list[float] = []
    monkeypatch.setattr(loading, "sleep", waits.append)
    return waits


def load(toy: Path) -> SpeechModel:
    options = settings_of(toy, cache="/nowhere", offline=True)
    return loading.load_speech(options, torch.device("cpu"))


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


@pytest.mark.parametrize(
    ("machine", "wanted", "expected"),
    [
        ("x86_64", "auto", "int8"),
        ("AMD64", "auto", "int8"),
        ("aarch64", "auto", "float32"),
        ("arm64", "auto", "float32"),
        ("aarch64", "int8", "int8"),
        ("x86_64", "float32", "float32"),
    ],
)
def test_weights_are_int8_by_default_on_x86_alone_and_what_is_asked_for_elsewhere(
    machine: str,
    wanted: Literal["auto", "int8", "float32"],
    expected: str,
    toy: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    model = Synthesizer.load(settings_of(toy, weights=wanted, max_text_chars=99))
    assert model.info.weights == expected


def test_the_weights_are_chosen_by_the_processor_unless_an_operator_says() -> None:
    assert Settings().weights == "auto"


def test_an_alignment_head_of_settings_is_parsed_and_a_malformed_one_refused() -> None:
    assert AlignmentHead.parse("3.2") == AlignmentHead(layer=3, head=2)
    assert AlignmentHead.parse("11.0+4") == AlignmentHead(layer=11, head=0, lead_frames=4)
    for wrong in ("3", "3.2+", "a.b", "3.2+300"):
        with pytest.raises(ValueError, match="alignment"):
            Settings(alignment=wrong)


def test_a_head_that_does_not_exist_stops_the_load(toy) -> None:
    with pytest.raises(CheckpointError, match="layer 99"):
        Synthesizer.load(settings_of(toy, max_text_chars=99, alignment="99.0"))
    loaded = Synthesizer.load(settings_of(toy, max_text_chars=99, alignment="0.0"))
    job = SpeechJob(
        "a",
        "Hi.",
        SamplingParams(seed=3),
        max_duration_s=0.5,
        report=ReportOptions(timestamps="word"),
    )
    *_, last = loaded.speak(loaded.planner.plan(job))
    assert last.result is not None
    assert last.result.utterances[0].words
