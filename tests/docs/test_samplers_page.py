"""The page on what the knobs do names every one of them, and none that is not there."""

import re

import pytest

from app.api.schemas import SpeechRequest
from samplers.knobs.params import SamplingParams
from samplers.knobs.presets import PRESETS
from tests.conftest import ROOT

PAGE = (ROOT / "docs" / "samplers.md").read_text("utf-8")


@pytest.mark.parametrize("knob", SamplingParams.model_fields)
def test_every_knob_is_explained(knob: str) -> None:
    assert f"`{knob}`" in PAGE


def test_names_like_knobs_are_knobs() -> None:
    named = set(re.findall(r"`([a-z]+(?:_[a-z0-9]+)+)`", PAGE))
    assert named - {*SpeechRequest.model_fields, *PRESETS} == set()


@pytest.mark.parametrize("preset", PRESETS)
def test_every_preset_is_named(preset: str) -> None:
    assert f"`{preset}`" in PAGE or preset == "default"
