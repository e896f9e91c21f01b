"""The corpus of recordings: some of what was said, by the same speakers, as loud as an upload."""

from pathlib import Path

import numpy as np
import pytest

from training.speech import recorded
from training.speech.corpus import SAMPLE_RATE_HZ, Corpus, write_shard

UTTERANCES = 40


def test_some_of_each_shard_is_recorded_always_the_same_and_it_is_known_who_it_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("VALLE_TRAINING_CACHE", str(tmp_path))
    monkeypatch.setattr("sys.argv", ["recorded", "--workers", "1"])
    random = np.random.default_rng(0)
    (tmp_path / "crowd").mkdir()
    parts = ("train", "speakers")
    for shard, part in enumerate(parts):
        speech = [
            (
                random.normal(0, 0.05, SAMPLE_RATE_HZ // 2).astype(np.float32),
                {"text": f"text {number}", "speaker": f"crowd-{number}", "part": part},
            )
            for number in range(UTTERANCES)
        ]
        write_shard(tmp_path / "crowd", shard, speech)
    recorded.main()
    corpus, first = Corpus(tmp_path, "recorded"), recorded.FIRST_SHARD["crowd"]
    assert corpus.shards == [first, first + 1]
    for shard, part in enumerate(parts, first):
        lines = [one for one in corpus.utterances if one.shard == shard]
        assert 0.2 * UTTERANCES < len(lines) < 0.8 * UTTERANCES
        assert {one.part for one in lines} == {part}
        assert all(one.text.split()[1] == one.speaker.split("-")[1] for one in lines)
    (tmp_path / "recorded").rename(tmp_path / "before")
    recorded.main()
    name = f"{first:04d}.i16"
    assert (tmp_path / "recorded" / name).read_bytes() == (tmp_path / "before" / name).read_bytes()
