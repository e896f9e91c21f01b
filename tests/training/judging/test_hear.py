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
LEVELS = {0: 0.25, 1: 0.5}


@pytest.mark.parametrize(
    ("heard", "edits"),
    [
        ("She keeps keys. It rained. Turn left now.", [0, 0, 0]),
        ("She keeps bees. It rained. Turn left now.", [1, 0, 0]),
        ("She keeps keys. It. Turn left now.", [0, 1, 0]),
        ("She keeps keys. It rained. Do turn left now. So there.", [0, 0, 3]),
        ("She keeps keys it rained", [0, 0, 3]),
        ("", [3, 2, 3]),
    ],
)
def test_edits_of_joined_texts_are_of_the_text_whose_words_they_are_at(
    heard: str, edits: list[int]
) -> None:
    assert edits_of(TEXTS, heard) == list(zip((3, 2, 3), edits, strict=True))


def test_takes_of_a_setting_are_joined_and_those_of_an_interrupted_study_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clips: list[np.ndarray] = []
    monkeypatch.setattr(Whisper, "__init__", lambda *_: None)
    monkeypatch.setattr(hear, "whisper_folder", lambda name: Path(name))
    monkeypatch.setattr(Whisper, "hear", lambda _, clip: clips.append(clip) or "it rained")
    monkeypatch.setattr("sys.argv", ["hear", "--joined", str(tmp_path / "heard")])
    asked = [
        {"text": text, "sound": str(tmp_path / f"{value}{text}.wav"), "setting": {"top_k": value}}
        for text in TEXTS
        for value in LEVELS
    ]
    for take in asked:
        level = LEVELS[take["setting"]["top_k"]]  # type: ignore[index]
        soundfile.write(take["sound"], np.full(10 * 16_000, level, np.float32), 16_000)
    for some in (asked[:2], asked[2:]):  # as two runs of the study
        monkeypatch.setattr(
            "sys.stdin", io.StringIO("".join(json.dumps(one) + "\n" for one in some))
        )
        clips.clear()
        hear.main()
        assert capsys.readouterr().out == "{}\n" * len(some)
        for take in some:
            Path(take["sound"]).unlink()  # type: ignore[arg-type]  # as the study does
    assert [round(len(clip) / 16_000, 1) for clip in clips] == [21.0, 10.5, 21.0, 10.5]
    assert [sorted({*clip.tolist()} - {0.0}) for clip in clips] == [[0.25], [0.25], [0.5], [0.5]]
    with (tmp_path / "heard" / "heard.csv").open() as file:
        rows = [*csv.DictReader(file)]
    assert {(row["setting"], row["text"]) for row in rows} == {
        (json.dumps(take["setting"]), take["text"]) for take in asked
    }
    assert {row["text"]: row["edits"] for row in rows} == {
        "It rained.": "0", "She keeps keys.": "3", "Turn left now.": "3",
    }  # fmt: skip
