from pathlib import Path

import numpy as np
import pytest

from lab.training.speech import corpus as data
from lab.training.speech.corpus import Corpus, sentences, write_shard


def tone(samples: int, height: float = 0.5) -> np.ndarray:
    return np.full(samples, height, np.float32)


def test_what_was_written_is_read_back_clipped_and_not_wrapped(tmp_path: Path) -> None:
    folder = tmp_path / "kokoro"
    folder.mkdir()
    speech = [
        (tone(240, 1.5), {"text": "One.", "speaker": "af_sky", "part": "train"}),
        (tone(480, -0.5), {"text": "Two.", "speaker": "mixed-001", "part": "train"}),
    ]
    assert write_shard(folder, 7, speech) == pytest.approx(720 / 24_000)
    corpus = Corpus(tmp_path, "kokoro")
    assert corpus.shards == [7]
    one, two = corpus.utterances
    assert (one.text, one.speaker, one.duration_s) == ("One.", "af_sky", 0.01)
    assert (two.text, two.speaker, two.part) == ("Two.", "mixed-001", "train")
    np.testing.assert_allclose(corpus.samples(one), tone(240, 1.0), atol=1e-4)
    np.testing.assert_allclose(corpus.samples(two), tone(480, -0.5), atol=1e-4)
    assert len(corpus.shard_samples(7)) == 720


def test_sentences_are_plain_distinct_and_ordered_by_the_seed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = ("noun", "verb", "adj", "adv")
    for part in parts:
        glosses = [f'0 | a {part}; "the {part} of a word"', '0 | shared; "the same everywhere"']
        glosses.append(f'0 | (of words) that is like a {part}; short; "too short"')
        glosses.append('0 | odd; "see fig. 3"; "too short"; "LOUD words are here"')
        (tmp_path / f"data.{part}").write_text("\n".join(glosses))
    fortunes = tmp_path / "fortunes"
    fortunes.mkdir()
    (fortunes / "wise").write_text("Look before you leap. He who\nwaits, wins!\n%\nNo 3 of them.\n")
    (fortunes / "wise.dat").write_text("This index is not a fortune.")
    monkeypatch.setattr(data, "WORDNET", tmp_path)
    monkeypatch.setattr(data, "FORTUNES", fortunes)
    found = sentences()
    assert set(found) == {
        "He who waits, wins!", "Look before you leap.", "The same everywhere.",
        *(f"That is like a {part}." for part in parts),
        *(f"The {part} of a word." for part in parts),
    }  # fmt: skip
    assert len(found) == len(set(found))
    assert sentences() == found != sentences(1)
    monkeypatch.setattr(data, "FORTUNES", tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match="apt-get install fortunes"):
        sentences()
