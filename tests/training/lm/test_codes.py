from pathlib import Path

import numpy as np
import pytest
import torch

from app.settings import BUILTIN_MODEL
from models.checkpoints import save_codec
from tests.training.lm.test_train import random_codec
from tests.training.synthetic import TEXTS, write_corpus
from training import cache as cache_of_training
from training.cache import present_model
from training.lm import codes
from training.lm.codes import codes_folder, keep, load_codes, trimmed
from training.speech.corpus import write_shard


@pytest.fixture(autouse=True)
def following(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    for module in (codes, cache_of_training):
        monkeypatch.setattr(module, "NEXT_MODEL", tmp_path / "next")
    save_codec(tmp_path / "next", random_codec(0))
    return tmp_path / "next"


def code(cache: Path, source: str, shards: int) -> None:
    folder = codes_folder(cache)
    (folder / source).mkdir(parents=True)
    for number in range(shards):
        codes._code_shard((cache, folder, source, number))


def test_utterances_come_back_with_phonemes_and_codes_also_where_the_cache_is_lost(
    tmp_path: Path,
) -> None:
    write_corpus(tmp_path / "crowd", shards=1)
    code(tmp_path, "crowd", 1)
    keep(tmp_path)
    for cache in (tmp_path, tmp_path / "empty"):
        train, held_out = load_codes(cache)["crowd"]
        assert held_out == []  # nobody of the crowd
        assert [one.text for one in train] == list(TEXTS)
        assert [one.speaker for one in train] == ["one-0", "one-1", "one-0"]
        assert train[0].codes.shape == (75, 4)
        assert (train[0].phoneme_ids[0], train[0].phoneme_ids[-1]) == (1, 2)
        np.testing.assert_array_equal(train[0].codes, load_codes(tmp_path)["crowd"][0][0].codes)


def test_shards_of_another_part_are_kept_out_and_no_others_or_else_the_last_ones(
    tmp_path: Path,
) -> None:
    write_corpus(tmp_path / "speech", shards=3, lines=1)
    (tmp_path / "kokoro").mkdir()
    for number, part in enumerate(("sentences", "speakers", "train", "train")):
        samples = np.random.default_rng(number).normal(scale=0.05, size=9600).astype(np.float32)
        fields = {"text": "So it goes.", "speaker": "a", "part": part}
        write_shard(tmp_path / "kokoro", number, [(samples, fields)])
    code(tmp_path, "speech", 3)
    code(tmp_path, "kokoro", 4)
    found = load_codes(tmp_path)
    parts = [[one.part for one in utterances] for utterances in found["kokoro"]]
    assert parts == [["train", "train"], ["sentences", "speakers"]]
    assert [len(utterances) for utterances in found["speech"]] == [1, 2]


def test_codes_depend_on_the_encoder_alone_of_the_newest_codec(
    tmp_path: Path, following: Path
) -> None:
    before, codec = codes_folder(tmp_path), random_codec(0)
    for part in ("decoder", "excitation", "encoder"):
        with torch.no_grad():
            next(getattr(codec, part).parameters()).add_(1)
        save_codec(following, codec)
        assert (codes_folder(tmp_path) == before) == (part != "encoder")
    assert present_model() == following
    (following / "codec.safetensors").unlink()
    assert present_model() == BUILTIN_MODEL


def test_trimming_leaves_a_short_silence_at_both_ends() -> None:
    speech, silence = np.full(24_000, 0.1, np.float32), np.zeros(24_000, np.float32)
    assert len(trimmed(np.concatenate([silence, speech, silence]))) == 24_000 + 3_600
