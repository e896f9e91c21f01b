"""Golden requests: what is stored with a model is what it speaks.

In other processes and with other machine code: `tests/cpu/test_compiling.py`.
"""

import json
import shutil
from pathlib import Path
from typing import Literal

import pytest
import torch

from app.engine.backend.golden import GOLDEN_FILE, GoldenRequest, codes_sha256, read_golden
from app.engine.backend.synthesizer import Synthesizer
from app.settings import BUILTIN_MODEL
from models.checkpoints.files import CheckpointError
from models.checkpoints.sources import open_speech_model
from models.codecs.shipped_codes import codec_digest, read_codes
from models.voices.voice import BuiltinVoices
from tests.app.tools.serving import settings_of

REQUEST = GoldenRequest(text="Hello.", params={"seed": 3, "temperature": 0.8})


@pytest.fixture
def folder(toy: Path, tmp_path: Path) -> Path:
    """A copy of the toy model with one golden request, whose codes are right."""
    copy = tmp_path / "model"
    shutil.copytree(toy, copy)
    model = Synthesizer.load(settings_of(copy, weights="int8", max_text_chars=99))
    right = REQUEST.model_copy(update={"codes_sha256": codes_sha256(model.spoken, REQUEST)})
    write(copy, right)
    return copy


def write(folder: Path, *requests: GoldenRequest) -> None:
    rows = [request.model_dump() for request in requests]
    (folder / GOLDEN_FILE).write_text(json.dumps(rows), "utf-8")


def loaded(folder: Path, weights: Literal["int8", "float32"] = "int8") -> Synthesizer:
    return Synthesizer.load(settings_of(folder, weights=weights, max_text_chars=99))


@pytest.mark.slow
def test_codes_that_are_those_stored_are_the_same(folder: Path) -> None:
    result = loaded(folder).checks.check_golden()
    assert result is not None
    assert (result.spoken, result.different) == (1, 0)


@pytest.mark.slow
def test_codes_that_are_not_those_stored_are_counted(folder: Path) -> None:
    (right,) = read_golden(folder)
    write(folder, right, right.model_copy(update={"params": {"seed": 4, "temperature": 0.8}}))
    result = loaded(folder).checks.check_golden()
    assert result is not None
    assert (result.spoken, result.different) == (2, 1)


def test_there_is_nothing_to_compare_without_stored_codes_or_with_other_weights(
    folder: Path, toy: Path
) -> None:
    assert loaded(toy).checks.check_golden() is None
    assert loaded(folder, weights="float32").checks.check_golden() is None


def test_a_damaged_file_is_named(folder: Path) -> None:
    (folder / GOLDEN_FILE).write_text("[{}]", "utf-8")
    with pytest.raises(CheckpointError, match=GOLDEN_FILE):
        loaded(folder).checks.check_golden()


def test_the_built_in_voices_ship_the_codes_that_their_codec_gives_here() -> None:
    speech = open_speech_model(BUILTIN_MODEL, torch.device("cpu"))
    digest = codec_digest(speech.codec)
    for voice in BuiltinVoices(BUILTIN_MODEL / "voices"):
        assert voice.codes is not None, "run python -m scripts.encode_voices"
        codes = read_codes(voice.codes, digest)
        assert codes is not None, "run python -m scripts.encode_voices"
        assert codes.shape[1] == speech.codec.config.levels


@pytest.mark.slow
@pytest.mark.weights
def test_the_built_in_model_speaks_its_golden_requests() -> None:
    assert len(read_golden(BUILTIN_MODEL)) == 20, "run python -m scripts.gen_golden"
    result = loaded(BUILTIN_MODEL).checks.check_golden()
    assert result is not None
    assert result.different == 0
