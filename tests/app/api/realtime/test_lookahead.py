"""The look-ahead of a text over a socket: asked for, of its take or preset, or the usual one."""

from typing import Any

import pytest

from app.api.realtime.lookahead import with_lookahead
from app.engine.core import Resume, SpeechJob, SpeechPart
from app.engine.interface import ModelInfo
from samplers.knobs.params import SamplingParams
from samplers.knobs.resolve import resolve

USUAL = 2
KNOWN: dict[str, dict[str, Any]] = {
    "auto": {},
    "early": {"text_lookahead_words": 1},
    "best": {"best_of": 3},
    "masked": {"level_0": "masked"},
}


def info(**fields: Any) -> ModelInfo:
    return ModelInfo("a model", "0" * 64, "cpu", 24_000, ("en",), fields=fields)


def words_of(
    kept: Resume | None = None, model: ModelInfo | None = None, **knobs: Any
) -> int | None:
    presets = {
        name: resolve(SamplingParams(), {}, {}).model_copy(update={"level_0": "ar", **own})
        for name, own in KNOWN.items()
    }
    job = SpeechJob("id", "", SamplingParams.model_validate(knobs), part=SpeechPart(kept=kept))
    params = with_lookahead(job, presets, model or info(), USUAL)
    return (
        params.text_lookahead_words if "text_lookahead_words" in params.model_fields_set else None
    )


@pytest.mark.parametrize(
    ("knobs", "words"),
    [
        ({}, USUAL),
        ({"temperature": 0.5}, USUAL),
        ({"text_lookahead_words": 0}, 0),
        ({"text_lookahead_words": 5, "preset": "early"}, 5),
        ({"preset": "early"}, 1),
        ({"preset": "best"}, None),
        ({"best_of": 2}, None),
        ({"beam_width": 4}, None),
        ({"preset": "best", "best_of": 1}, USUAL),
        ({"preset": "masked"}, None),
        ({"preset": "unknown"}, None),
    ],
    ids=str,
)
def test_the_request_comes_before_the_preset_and_that_before_the_usual_one(knobs, words) -> None:
    assert words_of(**knobs) == words


@pytest.mark.parametrize("lookahead", [0, 3])
def test_a_take_is_gone_on_from_with_its_own_look_ahead(lookahead) -> None:
    assert (words_of(Resume((), 0, lookahead)) or 0) == lookahead


def test_a_model_that_cannot_look_ahead_waits_for_sentences() -> None:
    assert words_of(model=info(text_lookahead_words={"maximum": 0})) is None
