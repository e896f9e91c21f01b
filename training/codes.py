"""Turn the corpus into what the language model is trained on: phonemes and codes.

    python -m training.codes

Needs the codec in `weights/next` (see `training.export`). One file a shard, kept if it is there;
codes of another codec lie in another folder, named after what makes codes in it: its decoder may
still be trained.
"""

import argparse
import hashlib
from dataclasses import dataclass
from functools import cached_property
from multiprocessing import Pool
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from tqdm import tqdm

from models.checkpoints import load_codec
from models.checkpoints.files import read_tensors
from models.config import BOS_ID, EOS_ID
from models.text import ENGLISH_SYMBOLS, phonemize_many
from training.cache import NEXT_MODEL, cache_folder
from training.data import SAMPLE_RATE_HZ, Corpus

# The teacher leaves 0.3 s of silence before and 0.45 s after every sentence. A listener would wait
# for the first, a model would learn to draw both: only this much is kept.
SILENCE_BEFORE_S, SILENCE_AFTER_S = 0.05, 0.10
SILENT_BELOW_DB = -45.0  # under the loudest 10 ms

SOURCES = ("speech", "kokoro", "bent")
"""Folders of corpora: `training.data`, `training.chorus`, `training.bends`."""

_IDS = {symbol: number for number, symbol in enumerate(ENGLISH_SYMBOLS, start=EOS_ID + 1)}


@dataclass(frozen=True)
class CodedUtterance:
    """One sentence as phonemes and codes ``[T, K]`` int16."""

    text: str
    phonemes: str
    codes: NDArray[np.int16]
    speaker: str

    @cached_property
    def phoneme_ids(self) -> list[int]:
        """Ids with the begin and end marks."""
        return [BOS_ID, *(_IDS[symbol] for symbol in self.phonemes), EOS_ID]

    @property
    def positions(self) -> int:
        """Length of the sequence that the model sees, roughly."""
        return len(self.phonemes) + len(self.codes) + 8


def _code_shard(task: tuple[Path, Path, str, int]) -> None:
    cache, folder, source, number = task
    torch.set_num_threads(1)
    corpus, codec = Corpus(cache, source), load_codec(NEXT_MODEL)
    utterances = [utterance for utterance in corpus.utterances if utterance.shard == number]
    phonemes = phonemize_many([utterance.text for utterance in utterances])
    codes = [
        codec.encode(torch.from_numpy(trimmed(corpus.samples(utterance)))).numpy().astype(np.int16)
        for utterance in utterances
    ]
    path = folder / source / f"{number:04d}.npz"
    partial = path.with_suffix(".partial.npz")
    np.savez(
        partial,
        codes=np.concatenate(codes),
        frames=np.array([len(rows) for rows in codes]),
        text=np.array([utterance.text for utterance in utterances]),
        phonemes=np.array(phonemes),
        speaker=np.array([utterance.speaker for utterance in utterances]),
    )
    partial.rename(path)


def trimmed(samples: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return ``[N]`` speech with a fixed, short silence at both ends; it must not be silent."""
    window = SAMPLE_RATE_HZ // 100
    blocks = samples[: len(samples) // window * window].reshape(-1, window)
    loudness = np.sqrt((blocks**2).mean(1))
    loud = np.flatnonzero(loudness > loudness.max() * 10 ** (SILENT_BELOW_DB / 20))
    start = int(loud[0]) * window - round(SILENCE_BEFORE_S * SAMPLE_RATE_HZ)
    end = (int(loud[-1]) + 1) * window + round(SILENCE_AFTER_S * SAMPLE_RATE_HZ)
    return samples[max(0, start) : end]


def codes_folder(cache: Path, model: Path = NEXT_MODEL) -> Path:
    """Return where the codes of a model's codec lie, by default of that in `weights/next`."""
    tensors = read_tensors([model / "codec.safetensors"])
    digest = hashlib.sha256()
    for name in sorted(tensors):
        if not name.startswith("decoder."):
            digest.update(tensors[name].half().numpy().tobytes())
    return cache / "codes" / digest.hexdigest()[:12]


def load_codes(
    cache: Path,
) -> dict[str, tuple[list[CodedUtterance], list[CodedUtterance]]]:
    """Return the utterances to train on and those kept out, by corpus, of coded shards.

    Raises:
        FileNotFoundError: Nothing has been coded yet.
    """
    found = {}
    for source in SOURCES:
        paths = sorted((codes_folder(cache) / source).glob("????.npz"))
        if not paths:
            continue
        held_out = Corpus(cache, source).held_out_shards
        train: list[CodedUtterance] = []
        validation: list[CodedUtterance] = []
        for path in paths:
            (validation if int(path.stem) in held_out else train).extend(_read_shard(path))
        found[source] = (train, validation)
    if not found:
        raise FileNotFoundError(f"no codes in {codes_folder(cache)}: run python -m training.codes")
    return found


def _read_shard(path: Path) -> list[CodedUtterance]:
    shard = np.load(path)
    pieces = np.split(shard["codes"], np.cumsum(shard["frames"])[:-1])
    return [
        CodedUtterance(str(text), str(phonemes), codes, str(speaker))
        for text, phonemes, codes, speaker in zip(
            shard["text"], shard["phonemes"], pieces, shard["speaker"], strict=True
        )
    ]


def main() -> None:
    """Encode and phonemise every shard that has not been."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--shards", type=int, help="of each corpus at most; None: all")
    args = parser.parse_args()
    cache = cache_folder()
    folder = codes_folder(cache)
    tasks = [
        (cache, folder, source, number)
        for source in SOURCES
        if (cache / source).is_dir()
        for number in Corpus(cache, source).shards[: args.shards]
        if not (folder / source / f"{number:04d}.npz").exists()
    ]
    for source in SOURCES:
        (folder / source).mkdir(parents=True, exist_ok=True)
    with Pool(args.workers) as pool:
        for _ in tqdm(pool.imap_unordered(_code_shard, tasks), total=len(tasks), unit="shard"):
            pass


if __name__ == "__main__":
    main()
