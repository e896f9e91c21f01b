from pathlib import Path

import numpy as np
import pytest
import torch

from app.settings import BUILTIN_MODEL
from models.checkpoints import save_codec
from models.codecs.spectral import SpectralCodec
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


def test_utterances_come_back_with_their_phonemes_and_codes(tmp_path: Path) -> None:
    write_corpus(tmp_path / "speech", shards=3)
    code(tmp_path, "speech", 3)
    train, held_out = load_codes(tmp_path)["speech"]
    assert len(train) == 3
    assert len(held_out) == 6
    assert [one.text for one in train] == list(TEXTS)
    assert [one.speaker for one in train] == ["one-0", "one-1", "one-0"]
    assert train[0].codes.shape == (75, 4)
    assert train[0].phoneme_ids[0] == 1
    assert train[0].phoneme_ids[-1] == 2


def test_shards_of_another_part_are_kept_out_and_no_others(tmp_path: Path) -> None:
    (tmp_path / "kokoro").mkdir()
    for number, part in enumerate(("sentences", "speakers", "train", "train")):
        samples = np.random.default_rng(number).normal(scale=0.05, size=9600).astype(np.float32)
        fields = {"text": "So it goes.", "speaker": "a", "part": part}
        write_shard(tmp_path / "kokoro", number, [(samples, fields)])
    code(tmp_path, "kokoro", 4)
    train, held_out = load_codes(tmp_path)["kokoro"]
    assert [one.part for one in train] == ["train", "train"]
    assert [one.part for one in held_out] == ["sentences", "speakers"]


def test_nobody_of_the_crowd_is_kept_out(tmp_path: Path) -> None:
    write_corpus(tmp_path / "crowd", shards=3)
    code(tmp_path, "crowd", 3)
    train, held_out = load_codes(tmp_path)["crowd"]
    assert len(train) == 9
    assert held_out == []


def test_what_was_kept_is_found_where_the_cache_is_lost(tmp_path: Path) -> None:
    write_corpus(tmp_path / "kokoro", shards=3)
    code(tmp_path, "kokoro", 3)
    before = load_codes(tmp_path)["kokoro"]
    keep(tmp_path)
    after = load_codes(tmp_path / "empty")["kokoro"]
    for one, other in zip((*before[0], *before[1]), (*after[0], *after[1]), strict=True):
        assert (one.text, one.phonemes, one.speaker) == (other.text, other.phonemes, other.speaker)
        np.testing.assert_array_equal(one.codes, other.codes)


def test_codes_do_not_depend_on_the_decoder(tmp_path: Path, following: Path) -> None:
    before, codec = codes_folder(tmp_path), random_codec(0)
    for part in ("decoder", "excitation"):
        change(codec, part)
        save_codec(following, codec)
        assert codes_folder(tmp_path) == before
    change(codec, "encoder")
    save_codec(following, codec)
    assert codes_folder(tmp_path) != before


def test_training_goes_on_from_what_ships_until_there_is_something_newer(following: Path) -> None:
    assert present_model() == following
    (following / "codec.safetensors").unlink()
    assert present_model() == BUILTIN_MODEL


def change(codec: SpectralCodec, part: str) -> None:
    with torch.no_grad():
        next(getattr(codec, part).parameters()).add_(1)


def test_trimming_leaves_a_short_silence_at_both_ends() -> None:
    speech = np.full(24_000, 0.1, np.float32)
    silence = np.zeros(24_000, np.float32)
    assert len(trimmed(np.concatenate([silence, speech, silence]))) == 24_000 + 3_600
