"""Shapes: what cannot be is refused when the config is read."""

import pytest
from pydantic import ValidationError

from models.config import CodecConfig, ModelConfig

GOOD = {"width": 32, "layers": 2, "heads": 4, "kv_heads": 2, "ffn": 48, "phonemes": ["a", "b"]}

NULL_HEAD = {"layers": [0, 1], "hidden": 8, "rank": 2, "max_strength": 2.5}
GUIDED = {"has_null_condition": True}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"width": 30}, "width 30 must be heads 4 times an even number"),
        ({"width": 36}, "width 36 must be heads 4 times an even number"),
        ({"kv_heads": 3}, "kv_heads 3 must divide heads 4"),
        ({"segments": ["resp", "phn"]}, "must be distinct and end with resp"),
        ({"segments": ["phn", "phn", "resp"]}, "must be distinct and end with resp"),
        ({"causal_size": 2}, "Extra inputs are not permitted"),
        ({"nar_mask": "sideways"}, "Input should be"),
        ({"null_head": NULL_HEAD}, "predicts a null condition, and there is none"),
        ({"null_head": NULL_HEAD | {"layers": [2]}, **GUIDED}, "of layers \\(2,\\) not all exist"),
        ({"null_head": NULL_HEAD | {"layers": [1, 0]}, **GUIDED}, "ascending"),
        ({"null_head": NULL_HEAD | {"max_strength": 1.0}, **GUIDED}, "greater than 1"),
    ],
)
def test_a_shape_that_cannot_be_is_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        ModelConfig.model_validate(GOOD | change)


def test_guidance_takes_one_row_up_to_what_a_null_head_was_trained_for() -> None:
    assert ModelConfig.model_validate(GOOD | GUIDED).one_row_strength == 1.0
    with_head = ModelConfig.model_validate(GOOD | GUIDED | {"null_head": NULL_HEAD})
    assert with_head.one_row_strength == 2.5


def test_phoneme_ids_follow_the_marks() -> None:
    assert ModelConfig.model_validate(GOOD).phoneme_ids == {"a": 3, "b": 4}


def test_frames_follow_from_the_ratios() -> None:
    config = CodecConfig()
    assert (config.hop, config.frame_rate_hz) == (320, 75.0)
