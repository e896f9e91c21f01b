"""How high speech is, moment by moment: what the codec's pitch is taught by.

    python -m lab.training.codec.pitch

The fast teacher knows: it makes its sound from pitch. For that of the others WORLD's DIO and
StoneMask find it (Morise et al. 2009, 2010), 45 times real time on a core. They miss much that is
voiced, so that where they find nothing, nothing is known. Kept beside each shard.
"""

import argparse
from multiprocessing import Pool
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from lab.training.cache import cache_folder
from lab.training.speech.bends import bend_named, bent_pitch, teacher_outputs
from lab.training.speech.corpus import SAMPLE_RATE_HZ, Corpus, load_teacher

SLOW, BENT, READERS, PEOPLE = "kokoro", "bent", "readers", "people"
UNTOLD = SLOW, READERS, PEOPLE  # whose makers do not say how high they speak
BY_SPEAKER = frozenset({PEOPLE})
"""Corpora that are heard by person and not by minute: all of them whose pitch has been found."""
LOWEST_HZ, HIGHEST_HZ = 60.0, 450.0
STEP = 120  # samples between two values
PITCHED_S = 1800.0  # of a corpus of teachers; the codec is trained on no more
UNKNOWN = -1.0
TEACHER_HOP = 300  # samples between two values of the fast teacher's
TEACHER_VOICED_HZ = 40.0  # where it says less, it makes no pulses


def pitched_shards(corpus: Corpus) -> list[int]:
    """Return the shards to train the codec on: the first ones, and all that are kept out."""
    if corpus.folder.name in BY_SPEAKER:
        return [one for one in corpus.shards if contour_path(corpus.folder, one).exists()]
    chosen, seconds = [], 0.0
    for number in corpus.shards:
        held_out = number in corpus.held_out_shards
        if held_out or seconds < PITCHED_S:
            chosen.append(number)
            seconds += 0 if held_out else len(corpus.shard_samples(number)) / SAMPLE_RATE_HZ
    return chosen


def contour_path(folder: Path, number: int) -> Path:
    """Return where the pitch of a shard lies."""
    return folder / f"{number:04d}.pitch.npy"


def contour(corpus: Corpus, number: int) -> NDArray[np.float32]:
    """Return the pitch of a shard every `STEP` samples, ``[N]`` in Hz.

    It is 0 where there is none, `UNKNOWN` where it was not found.
    """
    path = contour_path(corpus.folder, number)
    if not path.exists():
        found = (_found if corpus.folder.name in UNTOLD else _told)(corpus, number)
        partial = path.with_suffix(".partial.npy")
        np.save(partial, found)
        partial.rename(path)
    return np.asarray(np.load(path), np.float32)


def _found(corpus: Corpus, number: int) -> NDArray[np.float32]:
    import pyworld

    samples = corpus.shard_samples(number).astype(np.float64) / 32768
    rough, times = pyworld.dio(
        samples,
        SAMPLE_RATE_HZ,
        f0_floor=LOWEST_HZ,
        f0_ceil=HIGHEST_HZ,
        frame_period=1000 * STEP / SAMPLE_RATE_HZ,
    )
    fine = pyworld.stonemask(samples, rough, times, SAMPLE_RATE_HZ)
    return np.where((fine >= LOWEST_HZ) & (fine <= HIGHEST_HZ), fine, UNKNOWN).astype(np.float32)


def cycles_path(folder: Path, number: int) -> Path:
    """Return where the cycles of a shard lie."""
    return folder / f"{number:04d}.cycles.npy"


def cycles(corpus: Corpus, number: int) -> NDArray[np.float32]:
    """Return where in its cycle the voice of a shard is every `STEP` samples, ``[N]``, 0 to 1.

    It is 0 where the teacher's pulses stand, `UNKNOWN` where nobody knows.
    """
    path = cycles_path(corpus.folder, number)
    if corpus.folder.name in UNTOLD:
        return np.full(len(contour(corpus, number)), UNKNOWN, np.float32)
    if not path.exists():
        contour_path(corpus.folder, number).unlink(missing_ok=True)
        contour(corpus, number)
    return np.asarray(np.load(path), np.float32)


def cycles_at(
    cycle: NDArray[np.float32], contour_hz: NDArray[np.float32], places: NDArray[np.int64]
) -> NDArray[np.float32]:
    """Return where in its cycle the voice is at samples ``[T]``, else `UNKNOWN`."""
    below = np.minimum(places // STEP, len(contour_hz) - 2)
    pitch_hz = pitch_at(contour_hz, (below * STEP + places) // 2)  # half way there
    since_s = (places - below * STEP) / SAMPLE_RATE_HZ
    known = (pitch_hz > 0) & (cycle[below] >= 0) & (contour_hz[below] > 0)
    return np.where(known, (cycle[below] + pitch_hz * since_s) % 1, UNKNOWN).astype(np.float32)


def _teacher_cycles(pitch_hz: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the cycles that the fast teacher's pulses go through, a value a sample."""
    places = (np.arange(len(pitch_hz) * TEACHER_HOP) + 0.5) / TEACHER_HOP - 0.5
    between = np.interp(places, np.arange(len(pitch_hz)), pitch_hz)
    return np.cumsum(np.maximum(between, TEACHER_VOICED_HZ) / SAMPLE_RATE_HZ) % 1


def _told(corpus: Corpus, number: int) -> NDArray[np.float32]:
    """Ask the fast teacher what pitch it gave each utterance of a shard; keep cycles, too."""
    teacher = load_teacher()
    found = np.zeros(len(corpus.shard_samples(number)) // STEP + 1, np.float32)
    turned = np.full_like(found, UNKNOWN)
    for utterance in corpus.utterances:
        if utterance.shard != number:
            continue
        bend = bend_named(utterance.speaker)
        spoken = [
            bent_pitch(teacher_outputs(teacher, phonemes, bend.speed)[-1], bend, piece)
            for piece, phonemes in enumerate(teacher.phonemize(utterance.text))
        ]
        first, end = -(-utterance.start // STEP), -(-utterance.end // STEP)
        places = np.arange(first, end) * STEP - utterance.start
        found[first:end] = _between(np.concatenate(spoken), places / TEACHER_HOP - 0.5)
        turned[first:end] = np.concatenate([_teacher_cycles(one) for one in spoken])[places]
    np.save(cycles_path(corpus.folder, number), turned)
    return found


def _between(pitch_hz: NDArray[np.float32], places: NDArray[np.float64]) -> NDArray[np.float32]:
    """Return the teacher's pitch at ``places``; 0 where it makes no pulses."""
    indices = np.arange(len(pitch_hz))
    voiced = np.interp(places, indices, (pitch_hz > TEACHER_VOICED_HZ).astype(np.float32)) == 1
    return np.where(voiced, np.interp(places, indices, pitch_hz), 0).astype(np.float32)


def pitch_at(contour_hz: NDArray[np.float32], places: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return the pitch at samples ``[T]`` in Hz, 0 where there is none, else `UNKNOWN`."""
    below = np.minimum(places // STEP, len(contour_hz) - 2)
    one, other = contour_hz[below], contour_hz[below + 1]
    weight = (places / STEP - below).astype(np.float32)
    between: NDArray[np.float32] = one + (other - one) * weight
    known = ((one > 0) & (other > 0)) | ((one == 0) & (other == 0))
    return np.where(known, between, UNKNOWN).astype(np.float32)


def _find(task: tuple[Path, str, int]) -> None:
    cache, name, number = task
    contour(Corpus(cache, name), number)


def _shards_of(corpus: Corpus) -> list[int]:
    """Return the shards whose pitch is wanted."""
    return corpus.shards if corpus.folder.name in BY_SPEAKER else pitched_shards(corpus)


def main() -> None:
    """Find the pitch of all speech that the codec is trained on."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--workers", type=int, default=1)
    args = parser.parse_args()
    cache = cache_folder()
    tasks = [
        (cache, name, number)
        for name in (PEOPLE, SLOW, BENT, READERS, "speech")
        if any((cache / name).glob("*.jsonl"))
        for number in _shards_of(Corpus(cache, name))
    ]
    with Pool(args.workers) as pool:
        for _ in tqdm(pool.imap_unordered(_find, tasks), total=len(tasks), unit="shard"):
            pass


if __name__ == "__main__":
    main()
