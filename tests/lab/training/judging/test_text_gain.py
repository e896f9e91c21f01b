"""Text is worth much to speech that the model learned from, and nothing if it is another's."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from app.settings import BUILTIN_MODEL
from lab.training.judging import text_gain
from lab.training.judging.text_gain import losses
from lab.training.lm.codes import read_shard
from models.checkpoints.builtin import load_lm

SAID = read_shard(Path(__file__).with_name("kokoro-0001.npz"))
SPEAKERS = sorted({one.speaker for one in SAID})[:3]
SPOKEN = [one for one in SAID if one.speaker in SPEAKERS]


@pytest.mark.slow
def test_speech_is_likelier_by_its_own_text_alone_and_is_one_row_a_speaker() -> None:
    model = load_lm(BUILTIN_MODEL)
    own = losses(model, SPOKEN)
    assert own.shape == (3, 2)
    assert (own[:, 1] - own[:, 0] > 0.3).all()
    turned = [
        replace(one, phonemes=other.phonemes)
        for one, other in zip(SPOKEN, [*SPOKEN[1:], SPOKEN[0]], strict=True)
    ]
    others = losses(model, turned)
    np.testing.assert_allclose(others[:, 1], own[:, 1], atol=1e-5)
    assert (others[:, 1] < others[:, 0]).all()


@pytest.mark.parametrize("phonemes", ["", "ækt"])
def test_who_has_no_text_or_spoke_once_is_left_out(phonemes: str) -> None:
    once = replace(SPOKEN[0], speaker="once", phonemes=phonemes)
    assert losses(load_lm(BUILTIN_MODEL), [once]).shape == (0,)


def test_the_table_has_a_row_for_each_model_of_the_corpora_that_are_there(monkeypatch, capsys):
    monkeypatch.setattr(text_gain, "load_codes", lambda _: {"kokoro": ([], SPOKEN)})
    monkeypatch.setattr("sys.argv", ["text_gain", "--weights", str(BUILTIN_MODEL)])
    text_gain.main()
    rows = capsys.readouterr().out.splitlines()
    assert len(rows) == 3
    assert rows[2].startswith(f"| 3 of kokoro, {BUILTIN_MODEL} |")
