"""Speakers that the fast teacher gives when its pitch and formants are bent.

    python -m training.speech.bends --hours 4

The teacher predicts pitch and smooth spectra and makes sound of them by formula: pitch can be
multiplied, spectra stretched along frequency and time scaled before that. Speech of any number of
speakers then costs as little as that of one. They lie in the corpus `bent`, one shard a speaker;
the last ones are kept out of training.
"""

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from training.cache import cache_folder
from training.speech.chorus import levelled
from training.speech.corpus import load_teacher, sentences, shard_paths, speak_shards, write_shard

if TYPE_CHECKING:
    from hibari import Hibari

SHARD_SENTENCES = 100
HELD_OUT_SHARDS = 2
# Below 0.6 and above 1.25 of its pitch the teacher no longer sounds like anybody.
PITCHES, SPEEDS = (0.6, 1.25), (0.92, 1.12)
# Formants follow pitch, as throats do, but not strictly.
FORMANT_EXPONENT, FORMANT_SPREAD = 0.45, 0.04


@dataclass(frozen=True)
class Bend:
    """Factors of pitch, of the frequencies of formants, and of speed."""

    name: str
    pitch: float
    formant: float
    speed: float


UNBENT = Bend("hibari", 1.0, 1.0, 1.0)


def bends(count: int, seed: int = 0) -> list[Bend]:
    """Return ``bent-000``, ``bent-001``...; the first stay the same whatever ``count`` is."""
    random = np.random.default_rng([seed, 1])
    made = []
    for number in range(count):
        pitch = float(np.exp(random.uniform(*np.log(PITCHES))))
        formant = pitch**FORMANT_EXPONENT * float(np.exp(random.normal(0, FORMANT_SPREAD)))
        made.append(Bend(f"bent-{number:03d}", pitch, formant, float(random.uniform(*SPEEDS))))
    return made


def stretched(spectra: NDArray[np.float32], factor: float) -> NDArray[np.float32]:
    """Return ``[bins, T]`` with what was at bin k at bin ``k * factor``; the top is repeated."""
    bins = len(spectra)
    places = np.minimum(np.arange(bins) / factor, bins - 1)
    below = np.minimum(places.astype(np.int64), bins - 2)
    weight = (places - below).astype(np.float32)[:, None]
    mixed: NDArray[np.float32] = spectra[below] * (1 - weight) + spectra[below + 1] * weight
    return mixed


def teacher_outputs(teacher: "Hibari", phonemes: str, speed: float) -> list[NDArray[np.float32]]:
    """Return what the teacher makes sound from: spectra ``[bins, T]``, and last pitch ``[T]``."""
    inputs = {
        "ids": np.array([teacher.ids(phonemes)], np.int64),
        "speed": np.array([speed], np.float32),
    }
    return [output[0] for output in teacher.sess.run(None, inputs)]


def speak(teacher: "Hibari", text: str, bend: Bend) -> NDArray[np.float32]:
    """Return ``text`` ``[N]`` as the teacher says it, bent; its noise is the same every time."""
    from hibari import dsp

    random = np.random.default_rng(0)
    pieces = []
    for phonemes in teacher.phonemize(text):
        outputs = teacher_outputs(teacher, phonemes, bend.speed)
        harmonic, dispersion, noise, free, phase, pitch = outputs
        harmonic, dispersion, noise, free = (
            stretched(part, bend.formant) for part in (harmonic, dispersion, noise, free)
        )
        pieces.append(
            dsp.synth(harmonic, dispersion, noise, free, phase, pitch * bend.pitch, random)
        )
    return np.concatenate(pieces)


def _speak_shard(task: tuple[Path, int, list[str], Bend, str]) -> float:
    """Say one speaker's sentences; return the seconds of speech written."""
    folder, number, texts, bend, part = task
    teacher = load_teacher()
    speech = (
        (
            levelled(speak(teacher, text, bend)),
            {"text": text, "speaker": bend.name, "part": part},
        )
        for text in texts
    )
    return write_shard(folder, number, speech)


def main() -> None:
    """Speak one shard after the other until there are the hours asked for."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--hours", type=float, default=4.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    folder = cache_folder() / "bent"
    folder.mkdir(parents=True, exist_ok=True)
    # The one-voice corpus begins at the front of the list, the chorus at its end.
    texts = sentences(args.seed)
    texts = texts[len(texts) // 2 : len(texts) * 9 // 10]
    cast = bends(len(texts) // SHARD_SENTENCES, args.seed)
    tasks = [
        (
            folder,
            number,
            texts[number * SHARD_SENTENCES : (number + 1) * SHARD_SENTENCES],
            bend,
            "speakers" if number < HELD_OUT_SHARDS else "train",
        )
        for number, bend in enumerate(cast)
        if not shard_paths(folder, number)[1].exists()
    ]
    speak_shards(folder, _speak_shard, tasks, hours=args.hours, workers=args.workers)


if __name__ == "__main__":
    main()
