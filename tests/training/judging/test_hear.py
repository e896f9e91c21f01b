"""The judge that joins the takes of a study, with an ear that is told what it hears."""

import csv
import io
import json
from pathlib import Path

import numpy as np
import pytest
import soundfile

from training.judging import hear
from training.judging.judges import Whisper, edits_of

pytest.importorskip("whisper_normalizer")
pytest.importorskip("jiwer")

TEXTS = ("She keeps keys.", "It rained.", "Turn left now.")


@pytest.mark.parametrize(
    ("heard", "edits"),
    [
        ("She keeps bees. It rained. Turn left now.", [1, 0, 0]),
        ("She keeps keys. It. Turn left now. So there.", [0, 1, 2]),
        ("", [3, 2, 3]),
    ],
)
def test_edits_of_joined_texts_are_of_the_text_whose_words_they_are_at(
    heard: str, edits: list[int]
) -> None:
    assert edits_of(TEXTS, heard) == list(zip((3, 2, 3), edits, strict=True))


def test_takes_of_a_setting_are_joined_and_those_of_an_interrupted_study_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lengths: list[float] = []

    def listen(_: Whisper, clip: np.ndarray) -> str:
        lengths.append(len(clip) / 16_000)
        return "it rained"

    monkeypatch.setattr(Whisper, "__init__", lambda *_: None)
    monkeypatch.setattr(Whisper, "hear", listen)
    monkeypatch.setattr(hear, "whisper_folder", lambda name: Path(name))
    monkeypatch.setattr("sys.argv", ["hear", "--joined", str(tmp_path / "heard")])
    for text in TEXTS:  # each is a run of the study
        sound = tmp_path / f"{text}wav"
        soundfile.write(sound, np.zeros(160_000, np.float32), 16_000)
        takes = [{"text": text, "sound": str(sound), "setting": {"top_k": k}} for k in (1, 2)]
        monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(map(json.dumps, takes))))
        lengths.clear()
        hear.main()
        sound.unlink()  # as the study does
    assert lengths == [21.0, 10.5, 21.0, 10.5]
    with (tmp_path / "heard" / "heard.csv").open() as file:
        found = [(row["text"], row["edits"]) for row in csv.DictReader(file)]
    assert found == 2 * [("It rained.", "0"), ("She keeps keys.", "3"), ("Turn left now.", "3")]
