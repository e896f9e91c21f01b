"""Sound of kept codes: it is what the codec decodes, and nothing takes it for true speech."""

from pathlib import Path

import numpy as np
import pytest

from models.checkpoints import save_codec
from tests.training.lm.test_train import random_codec
from tests.training.synthetic import write_corpus
from training import cache as cache_of_training
from training.codec.clips import Clips
from training.lm import codes, restore
from training.speech.corpus import Corpus


def test_lost_sound_is_that_of_its_codes_which_stay_and_the_codec_does_not_learn_from_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    cache = tmp_path / "cache"
    monkeypatch.setenv("VALLE_TRAINING_CACHE", str(cache))
    for module in (codes, cache_of_training):
        monkeypatch.setattr(module, "NEXT_MODEL", tmp_path / "next")
    monkeypatch.setattr("sys.argv", ["codes", "--workers", "1"])
    save_codec(tmp_path / "next", random_codec(0))
    write_corpus(cache / "crowd", shards=2)
    codes.main()
    codes.keep(cache)
    cache.rename(tmp_path / "lost")
    cache.mkdir()
    before = codes.read_shard(codes.shard_files(cache, "crowd")[0])
    restore.main()
    codes.main()
    after = codes.read_shard(codes.shard_files(cache, "crowd")[0])
    corpus = Corpus(cache, "crowd")
    assert corpus.shards == [0, 1]
    assert corpus.restored_shards == {0, 1}
    lines = [one for one in corpus.utterances if one.shard == 0]
    for line, one, again in zip(lines, before, after, strict=True):
        assert (line.text, line.speaker) == (one.text, one.speaker)
        assert line.duration_s == len(one.codes) / 75
        np.testing.assert_array_equal(one.codes, again.codes)
    write_corpus(cache / "speech", shards=4)
    true = Corpus(cache, "speech")
    shared, alone = Clips([(true, 0.5), (corpus, 0.5)], 2_400), Clips([(true, 1.0)], 2_400)
    drawn, drawn_alone = (one.draw(8, np.random.default_rng(0)) for one in (shared, alone))
    np.testing.assert_array_equal(drawn, drawn_alone)
