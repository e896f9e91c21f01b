"""Judges for `valle-serve study`: how many words of the takes are wrong, as Whisper hears them.

    valle-serve study temperature=0.4:1.2:9 --judge \
        ".venv/bin/python -m lab.training.judging.hear"
    valle-serve study top_k=1,9 --judge \
        ".venv/bin/python -m lab.training.judging.hear --joined heard"

Reads lines ``{"text": ..., "sound": PATH, "setting": ...}``. The first writes a line ``{"wer": ...,
"cer": ...}`` each. Whisper listens to 30 s whatever there is, so that a take of 2 s costs as much
as fifteen of them: the second writes ``{}``, keeps the takes in a folder, and at the end of the
study joins those of each setting, with silence between, to clips that it hears. Its ``heard.csv``
has a row ``setting,text,words,edits`` for each take; edits of a clip are of the take whose words
they are at.
"""

import argparse
import csv
import json
import shutil
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

try:
    import soundfile

    from lab.training.judging.judges import (
        HEARING_RATE_HZ,
        Whisper,
        count_errors,
        edits_of,
        in_words,
        resample,
        whisper_folder,
    )
except ModuleNotFoundError as error:
    raise SystemExit(f"hear: {error}; `scripts/install evaluate` installs it") from error

_LONGEST_S, _BETWEEN_S = 28.0, 0.5

Take = Mapping[str, Any]


def main() -> None:
    """Judge until stdin ends."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--joined", type=Path, help="folder of the takes, and of heard.csv")
    folder = options.parse_args().joined
    asked = map(json.loads, sys.stdin)
    if folder is None:
        _hear_each(asked)
    else:
        _hear_joined(folder, asked)


def _hear_each(asked: Iterator[Take]) -> None:
    whisper = Whisper(whisper_folder("tiny.en"))
    for take in asked:
        errors = count_errors(in_words(take["text"]), in_words(whisper.hear(_read(take))))
        rates = {
            "wer": errors.word_edits / errors.words,
            "cer": errors.letter_edits / errors.letters,
        }
        print(json.dumps(rates), flush=True)


def _hear_joined(folder: Path, asked: Iterator[Take]) -> None:
    """Keep takes beside those of an interrupted study, then hear all."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "takes.jsonl").open("a") as file:
        for take in asked:
            if not take.get("trial"):  # which the study sends to see that this runs
                sound = shutil.copy(take["sound"], folder)
                print(json.dumps({**take, "sound": sound}), file=file, flush=True)
            print("{}", flush=True)
    takes = _ordered(map(json.loads, (folder / "takes.jsonl").read_text().splitlines()))
    whisper = Whisper(whisper_folder("tiny.en"))
    with (folder / "heard.csv").open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("setting", "text", "words", "edits"))
        for clip, samples in join(takes):
            said = [in_words(take["text"]) for take in clip]
            errors = edits_of(said, in_words(whisper.hear(samples)))
            for take, one in zip(clip, errors, strict=True):
                row = json.dumps(take["setting"]), take["text"], one.words, one.edits
                writer.writerow(row)


def join(takes: Sequence[Take]) -> Iterator[tuple[list[Take], NDArray[np.float32]]]:
    """Yield clips of successive takes of one setting, and their samples ``[N]`` of 16 kHz."""
    silence = np.zeros(round(_BETWEEN_S * HEARING_RATE_HZ), np.float32)
    clip, parts = list[Take](), list[NDArray[np.float32]]()
    for take in takes:
        sound = _read(take)
        length = sum(map(len, parts)) + len(sound)
        other = clip and clip[-1]["setting"] != take["setting"]
        if clip and (other or length > _LONGEST_S * HEARING_RATE_HZ):
            yield clip, np.concatenate(parts)
            clip, parts = [], []
        clip.append(take)
        parts += [sound, silence]
    if clip:
        yield clip, np.concatenate(parts)


def _ordered(takes: Iterable[Take]) -> list[Take]:
    """Return takes by setting, all texts before any again: what was just heard is heard better."""
    counts = Counter[str]()

    def place(take: Take) -> tuple[str, int, str]:
        setting, text = json.dumps(take["setting"]), take["text"]
        counts[setting + text] += 1
        return setting, counts[setting + text], text

    return sorted(takes, key=place)


def _read(take: Take) -> NDArray[np.float32]:
    samples, rate_hz = soundfile.read(take["sound"], dtype="float32")
    return resample(samples, rate_hz, HEARING_RATE_HZ)


if __name__ == "__main__":
    main()
