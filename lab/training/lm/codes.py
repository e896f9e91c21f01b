"""Turn the corpus into what the language model is trained on: phonemes and codes.

    python -m lab.training.lm.codes

Needs a codec: that in `next` of the cache (see `lab.training.export`), else the one that ships. One
file a shard, kept if it is there; codes of another codec lie in another folder, named after what
makes codes in it: what makes sound of them may still be trained.

The slow teacher's codes are worth keeping where the cache is lost: `--keep` writes them beside the
codec, where they are found as if they were in the cache.
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

from lab.training.cache import NEXT_MODEL, cache_folder, present_model
from lab.training.codec.encoded import encoded
from lab.training.speech.corpus import HELD_OUT_SHARDS, SAMPLE_RATE_HZ, Corpus, Part
from models.checkpoints.builtin import load_codec
from models.checkpoints.files import read_tensors
from models.config import BOS_ID, EOS_ID
from models.text import ENGLISH_SYMBOLS, phonemize

# The teacher leaves 0.3 s of silence before and 0.45 s after every sentence. A listener would wait
# for the first, a model would learn to draw both: only this much is kept.
SILENCE_BEFORE_S, SILENCE_AFTER_S = 0.05, 0.10
SILENT_BELOW_DB = -45.0  # under the loudest 10 ms
PEOPLE_BEFORE_S = 0.10  # of silence before what people say, in their corpus

SLOW, CROWD, RECORDED, PEOPLE = "kokoro", "crowd", "recorded", "people"
SOURCES = ("speech", SLOW, CROWD, "bent", "readers", "perturbed", "texts", PEOPLE)
"""Folders of corpora, by `corpus`, `chorus`, `crowd`, `bends`, `readers`, `perturb`, `reading` and
`people` of training."""

_IDS = {symbol: number for number, symbol in enumerate(ENGLISH_SYMBOLS, start=EOS_ID + 1)}


@dataclass(frozen=True)
class CodedUtterance:
    """One sentence as phonemes and codes ``[T, K]`` int16.

    Text and phonemes are empty where nobody knows what is said: it is heard as a prompt alone.
    """

    text: str
    phonemes: str
    codes: NDArray[np.int16]
    speaker: str
    part: Part = "train"

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
    corpus, codec = Corpus(cache, source), load_codec(present_model())
    entries = [one for one in corpus.utterances if one.shard == number]
    if source == PEOPLE:  # their corpus leaves as much silence as `trimmed` does after them
        before = round((PEOPLE_BEFORE_S - SILENCE_BEFORE_S) * codec.config.frame_rate_hz)
        codes = [whole[before:] for whole in encoded(corpus, number)]
    else:
        codes = [
            codec.encode(torch.from_numpy(trimmed(corpus.samples(one)))).numpy().astype(np.int16)
            for one in entries
        ]
    utterances = [
        CodedUtterance(
            one.text, phonemize(one.text) if one.text else "", rows, one.speaker, one.part
        )
        for one, rows in zip(entries, codes, strict=True)
    ]
    path = folder / source / f"{number:04d}.npz"
    partial = path.with_suffix(".partial.npz")
    np.savez(
        partial,
        codes=np.concatenate(codes),
        frames=np.array([len(rows) for rows in codes]),
        text=np.array([one.text for one in utterances]),
        phonemes=np.array([one.phonemes for one in utterances]),
        speaker=np.array([one.speaker for one in utterances]),
        part=np.array([one.part for one in utterances]),
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


def codes_folder(cache: Path, model: Path | None = None) -> Path:
    """Return where the codes of a model's codec lie, by default of `present_model`."""
    tensors = read_tensors([(model or present_model()) / "codec.safetensors"])
    digest = hashlib.sha256()
    for name in sorted(tensors):
        if not name.startswith(("decoder.", "excitation.")):
            digest.update(tensors[name].half().numpy().tobytes())
    return cache / "codes" / digest.hexdigest()[:12]


def load_codes(
    cache: Path,
) -> dict[str, tuple[list[CodedUtterance], list[CodedUtterance]]]:
    """Return the utterances to train on and those kept out, by corpus, of coded shards.

    Raises FileNotFoundError if nothing has been coded yet.
    """
    found = {}
    for source in SOURCES:
        paths = shard_files(cache, source)
        if not paths:
            continue
        shards = [read_shard(path) for path in paths]
        held_out = [shard[0].part != "train" for shard in shards]
        if not any(held_out) and source != CROWD:  # one voice: the last are kept out
            held_out[-HELD_OUT_SHARDS:] = [True] * HELD_OUT_SHARDS
        found[source] = (
            [one for shard, out in zip(shards, held_out, strict=True) if not out for one in shard],
            [one for shard, out in zip(shards, held_out, strict=True) if out for one in shard],
        )
    if not found:
        raise FileNotFoundError(
            f"no codes in {codes_folder(cache)}: run python -m lab.training.lm.codes"
        )
    return found


def load_captured(cache: Path) -> list[CodedUtterance]:
    """Return what `lab.training.speech.recorded` made of them: prompts, never targets."""
    return [one for path in shard_files(cache, RECORDED) for one in read_shard(path)]


def shard_files(cache: Path, source: str) -> list[Path]:
    """Return the coded shards of a corpus in order, those kept beside the codec among them."""
    files = {path.name: path for path in (NEXT_MODEL / "codes" / source).glob("????.npz")}
    files |= {path.name: path for path in (codes_folder(cache) / source).glob("????.npz")}
    return [files[name] for name in sorted(files)]


def keep(cache: Path) -> None:
    """Write the codes of the slow teacher's speech beside the codec, compressed."""
    for source in (SLOW, CROWD):
        for path in shard_files(cache, source):
            with np.load(path) as shard:
                arrays = dict(shard)
            kept = NEXT_MODEL / "codes" / source / path.name
            kept.parent.mkdir(parents=True, exist_ok=True)
            np.savez_compressed(kept, allow_pickle=False, **arrays)


def read_shard(path: Path) -> list[CodedUtterance]:
    """Return the utterances of a coded shard."""
    shard = np.load(path)
    pieces = np.split(shard["codes"], np.cumsum(shard["frames"])[:-1])
    return [
        CodedUtterance(str(text), str(phonemes), codes, str(speaker), part)
        for text, phonemes, codes, speaker, part in zip(
            shard["text"],
            shard["phonemes"],
            pieces,
            shard["speaker"],
            shard["part"].tolist(),
            strict=True,
        )
    ]


def main() -> None:
    """Encode and phonemise every shard that has not been."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--shards", type=int, help="of each corpus at most; None: all")
    parser.add_argument("--sources", nargs="+", choices=(*SOURCES, RECORDED), help="None: all")
    parser.add_argument("--keep", action="store_true", help="beside the codec, the slow teacher's")
    args = parser.parse_args()
    cache = cache_folder()
    if args.keep:
        keep(cache)
        return
    folder = codes_folder(cache)
    sources = args.sources or (*SOURCES, RECORDED)
    coded = {(source, path.name) for source in sources for path in shard_files(cache, source)}
    tasks = [
        (cache, folder, source, number)
        for source in sources
        if any((cache / source).glob("*.jsonl"))
        for number in Corpus(cache, source).shards[: args.shards]
        if (source, f"{number:04d}.npz") not in coded
    ]
    for source in sources:
        (folder / source).mkdir(parents=True, exist_ok=True)
    with Pool(args.workers) as pool:
        for _ in tqdm(pool.imap_unordered(_code_shard, tasks), total=len(tasks), unit="shard"):
            pass


if __name__ == "__main__":
    main()
