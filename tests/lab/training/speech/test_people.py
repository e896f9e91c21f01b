"""People are read from a folder of two tables; what cannot be known of them is no target."""

import csv
from pathlib import Path

import numpy as np
import pytest
import soundfile

from lab.training.cache import cache_folder
from lab.training.speech import people
from lab.training.speech.corpus import SAMPLE_RATE_HZ, Corpus
from lab.training.speech.people import (
    HELD_OUT,
    PEOPLE_A_SHARD,
    PersonalRecording,
    casts,
    held_out,
    read_index,
    told_text,
)

COLUMNS = (
    *("file", "speaker", "source", "licence", "seconds", "bandwidth", "snr", "text", "text_by"),
    *("language", "kind", "original_rate", "original"),
)


def recording(**changed: object) -> PersonalRecording:
    """Return a clear English sentence of librispeech, but for what is changed."""
    fields: dict[str, object] = {
        "file": "librispeech/1/001.opus", "speaker": "librispeech/1", "source": "librispeech",
        "seconds": 2.5, "bandwidth_hz": 8000.0, "snr_db": 36.0, "text": "The bag was full of gold.",
        "text_by": "whisper-tiny", "language": "en", "kind": "sentence",
    }  # fmt: skip
    return PersonalRecording(**{**fields, **changed})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({}, "The bag was full of gold."),
        ({"text": "and the bag was full"}, "And the bag was full,"),  # Whisper heard it break off
        ({"text": "And the bag was full", "text_by": "source"}, "And the bag was full."),
        ({"text": "Chapter 31, a bag."}, "Chapter thirty-one, a bag."),
        ({"text": '"Go home," said the man.'}, 'Go home," said the man.'),
        ({"kind": "words"}, ""),
        ({"language": "de"}, ""),
        ({"text": "", "text_by": "-"}, ""),
        ({"text": "设定二十九度", "language": "en"}, ""),
        ({"text": "Gold."}, ""),  # a word
        ({"seconds": 0.9}, ""),  # nobody speaks so fast
        ({"seconds": 9.0}, ""),  # nor so slowly: something was left out
        ({"text": "The bag was full of gold. " * 8, "seconds": 15.0}, ""),  # longer than any text
        ({"source": "alnum"}, ""),
        ({"source": "alnum", "text_by": "source"}, "The bag was full of gold."),
    ],
)
def test_what_is_said_is_told_only_where_it_is_known(changed, told):
    assert told_text(recording(**changed)) == told


def crowd(each: int = 3) -> list[PersonalRecording]:
    """Return some recordings of fifteen people of each source."""
    return [
        recording(source=source, speaker=f"{source}/{person}", file=f"{source}/{person}/{number}")
        for source in (*HELD_OUT, "emodb")
        for person in range(15)
        for number in range(each)
    ]


def test_people_who_are_kept_out_are_of_every_wanted_source_and_in_one_shard_alone() -> None:
    recordings = crowd()
    kept = held_out(recordings)
    counts = {source: sum(name.startswith(f"{source}/") for name in kept) for source in HELD_OUT}
    assert counts == HELD_OUT
    assert held_out(recordings) == kept != held_out(recordings, seed=1)
    shards = list(casts(recordings, kept))
    assert [part for _, part in shards] == ["speakers", *["train"] * (len(shards) - 1)]
    assert {one.speaker for one in shards[0][0]} == kept
    speakers = [{one.speaker for one in cast} for cast, _ in shards]
    assert sum(map(len, speakers)) == len(set.union(*speakers)) == 90
    assert max(map(len, speakers)) == PEOPLE_A_SHARD
    assert sum(len(cast) for cast, _ in shards) == len(recordings)


def test_nobody_is_kept_out_of_whom_no_second_text_is_known() -> None:
    assert held_out(crowd(each=1)) == set()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of three people with two recordings each, one of them of words."""
    monkeypatch.setenv("VALLE_TRAINING_CACHE", str(tmp_path / "cache"))
    random = np.random.default_rng(0)
    rows = []
    for number in range(6):
        speaker = f"vctk/{number // 2}"
        path = tmp_path / "people" / speaker / f"{number:03d}.opus"
        path.parent.mkdir(parents=True, exist_ok=True)
        noise = random.normal(0, 0.1, 2 * SAMPLE_RATE_HZ)
        soundfile.write(path, noise, SAMPLE_RATE_HZ, format="OGG", subtype="OPUS")
        values = (f"{speaker}/{number:03d}.opus", speaker, "vctk", "CC-BY-4.0", 2.0, 8000 + number,
                  20.0 + number, 'She said "no" to him.', "source", "en",
                  "words" if number == 5 else "sentence", 16000, "x.wav")  # fmt: skip
        rows.append(dict(zip(COLUMNS, values, strict=True)))
    with (tmp_path / "people" / "index.tsv").open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, dialect="excel-tab")
        writer.writeheader()
        writer.writerows(rows)
    return tmp_path / "people"


@pytest.mark.slow
def test_the_corpus_has_every_recording_with_what_is_known_of_it(folder, monkeypatch) -> None:
    monkeypatch.setattr("sys.argv", ["people", "--folder", str(folder), "--workers", "1"])
    people.main()
    corpus = Corpus(cache_folder(), people.NAME)
    told = {one.file: one for one in read_index(folder)}
    assert len(corpus.utterances) == len(told) == 6
    assert sorted({one.speaker for one in corpus.utterances}) == [
        f"person-vctk/{number}" for number in range(3)
    ]
    assert corpus.held_out_shards == {0}
    assert sum(not one.text for one in corpus.utterances) == 1
    assert {(one.band_hz, one.snr_db) for one in corpus.utterances} == {
        (one.bandwidth_hz, one.snr_db) for one in told.values()
    }
    for one in corpus.utterances:
        assert one.duration_s == pytest.approx(2.0, abs=0.05)


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no part of the repository"):
        read_index(tmp_path)
