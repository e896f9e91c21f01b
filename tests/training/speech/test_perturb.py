from pathlib import Path

import numpy as np
import pytest

from training.speech.corpus import Corpus, derive_shards, write_shard
from training.speech.perturb import (
    FIRST_SHARD,
    LEAST_CHANGE,
    MOST_CHANGE,
    SHARDS_ALIKE,
    play,
    played,
    rate_of,
)


@pytest.mark.parametrize("source", sorted(MOST_CHANGE))
def test_rates_go_both_ways_none_is_near_to_one_and_a_speaker_keeps_one_for_a_while(
    source: str,
) -> None:
    rates = np.array([rate_of(source, f"mixed-{number:03d}", 0) for number in range(300)])
    changes = np.maximum(rates, 1 / rates)
    assert LEAST_CHANGE <= changes.min() < 1.07
    assert MOST_CHANGE[source] - 0.01 < changes.max() <= MOST_CHANGE[source]
    assert 0.4 < (rates > 1).mean() < 0.6
    own = [rate_of(source, "af_bella", shard) for shard in range(3 * SHARDS_ALIKE)]
    assert (len(set(own)), len(set(own[:SHARDS_ALIKE]))) == (3, 1)


@pytest.mark.parametrize("rate", [0.85, 1.2])
def test_what_is_played_faster_is_shorter_and_higher(rate: float) -> None:
    tone = np.sin(2 * np.pi * 200 * np.arange(24_000) / 24_000).astype(np.float32)
    fast = played(tone, rate)
    assert len(fast) == pytest.approx(24_000 / rate, abs=1)
    spectrum = np.abs(np.fft.rfft(fast * np.hanning(len(fast))))
    assert spectrum.argmax() * 24_000 / len(fast) == pytest.approx(200 * rate, rel=0.01)


@pytest.mark.parametrize("source", sorted(FIRST_SHARD))
def test_a_shard_keeps_its_sentences_and_parts_and_renames_its_speakers(
    source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VALLE_TRAINING_CACHE", str(tmp_path))
    (tmp_path / source).mkdir()
    noise = np.random.default_rng(0).normal(scale=0.1, size=24_000).astype(np.float32)
    said = {"mixed-072": "One.", "mixed-073": "Two."}
    fields = [{"text": text, "speaker": name, "part": "speakers"} for name, text in said.items()]
    write_shard(tmp_path / source, 1, [(noise, one) for one in fields])
    derive_shards("perturbed", play, FIRST_SHARD, workers=1)
    entries = Corpus(tmp_path, "perturbed").utterances
    for entry, (name, text) in zip(entries, said.items(), strict=True):
        rate = rate_of(source, name, 1)
        assert (entry.text, entry.part) == (text, "speakers")
        assert entry.shard == FIRST_SHARD[source] + 1
        assert entry.speaker == f"{name}-{round(100 * rate)}"
        assert entry.duration_s == pytest.approx(1 / rate, abs=1e-3)
