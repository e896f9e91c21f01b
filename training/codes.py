"""Turn the corpus into what the language model is trained on: phonemes and codes.

    python -m training.codes

Needs the codec in `weights/` (see `training.export`). One file a shard, kept if it is there.
"""

import argparse
from dataclasses import dataclass
from functools import cached_property
from multiprocessing import Pool
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from tqdm import tqdm

from models.checkpoints import load_codec
from models.config import BOS_ID, EOS_ID
from models.text import ENGLISH_SYMBOLS, phonemize_many
from training.cache import cache_folder
from training.data import Corpus
from training.export import WEIGHTS

_IDS = {symbol: number for number, symbol in enumerate(ENGLISH_SYMBOLS, start=EOS_ID + 1)}


@dataclass(frozen=True)
class CodedUtterance:
    """One sentence as phonemes and codes ``[T, K]`` int16."""

    text: str
    phonemes: str
    codes: NDArray[np.int16]

    @cached_property
    def phoneme_ids(self) -> list[int]:
        """Ids with the begin and end marks."""
        return [BOS_ID, *(_IDS[symbol] for symbol in self.phonemes), EOS_ID]

    @property
    def positions(self) -> int:
        """Length of the sequence that the model sees, roughly."""
        return len(self.phonemes) + len(self.codes) + 8


def _code_shard(task: tuple[Path, int]) -> None:
    cache, number = task
    torch.set_num_threads(1)
    corpus, codec = Corpus(cache), load_codec(WEIGHTS)
    utterances = [utterance for utterance in corpus.utterances if utterance.shard == number]
    phonemes = phonemize_many([utterance.text for utterance in utterances])
    codes = [
        codec.encode(torch.from_numpy(corpus.samples(utterance))).numpy().astype(np.int16)
        for utterance in utterances
    ]
    path = _path(cache, number)
    partial = path.with_suffix(".partial.npz")
    np.savez(
        partial,
        codes=np.concatenate(codes),
        frames=np.array([len(rows) for rows in codes]),
        text=np.array([utterance.text for utterance in utterances]),
        phonemes=np.array(phonemes),
    )
    partial.rename(path)


def _path(cache: Path, number: int) -> Path:
    return cache / "codes" / f"{number:04d}.npz"


def load_codes(cache: Path) -> tuple[list[CodedUtterance], list[CodedUtterance]]:
    """Return the utterances to train on and those kept out.

    Raises:
        FileNotFoundError: Nothing has been coded yet.
    """
    held_out = Corpus(cache).held_out_shards
    train: list[CodedUtterance] = []
    validation: list[CodedUtterance] = []
    paths = sorted((cache / "codes").glob("????.npz"))
    if not paths:
        raise FileNotFoundError(f"no codes in {cache / 'codes'}: run python -m training.codes")
    for path in paths:
        shard = np.load(path)
        ends = np.cumsum(shard["frames"])
        pieces = np.split(shard["codes"], ends[:-1])
        for text, phonemes, codes in zip(shard["text"], shard["phonemes"], pieces, strict=True):
            utterance = CodedUtterance(str(text), str(phonemes), codes)
            (validation if int(path.stem) in held_out else train).append(utterance)
    return train, validation


def main() -> None:
    """Encode and phonemise every shard that has not been."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    cache = cache_folder()
    (cache / "codes").mkdir(exist_ok=True)
    tasks = [
        (cache, number) for number in Corpus(cache).shards if not _path(cache, number).exists()
    ]
    with Pool(args.workers) as pool:
        for _ in tqdm(pool.imap_unordered(_code_shard, tasks), total=len(tasks), unit="shard"):
            pass


if __name__ == "__main__":
    main()
