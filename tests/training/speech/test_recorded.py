"""The corpus of recordings: some of what was said, by the same speakers, as loud as an upload."""

from pathlib import Path

import numpy as np
import pytest

from models.voices.loudness import loudness_lufs
from models.voices.recording import LEVEL_LUFS
from training.speech import recorded
from training.speech.corpus import SAMPLE_RATE_HZ, Corpus, write_shard

UTTERANCES = 40


@pytest.fixture
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Two shards of the crowd, the second of speakers who are kept out."""
    monkeypatch.setenv("VALLE_TRAINING_CACHE", str(tmp_path))
    monkeypatch.setattr("sys.argv", ["recorded", "--workers", "1"])
    random = np.random.default_rng(0)
    (tmp_path / "crowd").mkdir()
    for shard, part in enumerate(("train", "speakers")):
        write_shard(
            tmp_path / "crowd",
            shard,
            [
                (
                    random.normal(0, 0.05, SAMPLE_RATE_HZ // 2).astype(np.float32),
                    {"text": f"text {number}", "speaker": f"crowd-{number}", "part": part},
                )
                for number in range(UTTERANCES)
            ],
        )
    return tmp_path


def test_some_of_each_shard_is_recorded_and_tells_who_it_is(cache: Path) -> None:
    recorded.main()
    corpus = Corpus(cache, "recorded")
    first = recorded.FIRST_SHARD["crowd"]
    assert corpus.shards == [first, first + 1]
    for shard, part in ((first, "train"), (first + 1, "speakers")):
        lines = [one for one in corpus.utterances if one.shard == shard]
        assert 0.2 * UTTERANCES < len(lines) < 0.8 * UTTERANCES
        assert {one.part for one in lines} == {part}
        assert all(one.text.split()[1] == one.speaker.split("-")[1] for one in lines)


def test_what_is_recorded_stays_the_same(cache: Path) -> None:
    recorded.main()
    path = cache / "recorded" / f"{recorded.FIRST_SHARD['crowd']:04d}.i16"
    before = path.read_bytes()
    for file in (cache / "recorded").iterdir():
        file.unlink()
    recorded.main()
    assert path.read_bytes() == before


def test_recordings_are_as_loud_as_uploads() -> None:
    noise = np.random.default_rng(0).normal(0, 0.001, SAMPLE_RATE_HZ).astype(np.float32)
    assert loudness_lufs(recorded.uploaded(noise), SAMPLE_RATE_HZ) == pytest.approx(
        LEVEL_LUFS, abs=0.1
    )
