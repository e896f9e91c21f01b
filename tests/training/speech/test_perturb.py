from pathlib import Path

import numpy as np
import pytest

from training.speech.corpus import Corpus, derive_corpus, write_shard
from training.speech.perturb import FIRST_SHARD, VERSIONS, play, rate_of


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
    derive_corpus("perturbed", play, FIRST_SHARD, workers=1)
    entries = Corpus(tmp_path, "perturbed").utterances
    made = [(*one, version) for one in said.items() for version in range(VERSIONS)]
    for entry, (name, text, version) in zip(entries, made, strict=True):
        rate = rate_of(source, name, 1, version)
        assert (entry.text, entry.part) == (text, "speakers")
        assert entry.shard == FIRST_SHARD[source] + 1
        assert entry.speaker == f"{name}-0-{version}"
        assert entry.duration_s == pytest.approx(1 / rate, abs=1e-3)
