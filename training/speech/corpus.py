"""Make the corpus: English sentences, and a teacher reading them.

Sentences come from the example phrases and definitions of WordNet (Debian's ``wordnet-base``) and
from Debian's ``fortunes``; the teacher is ``hibari-tts`` (Apache-2.0, one American voice, 24 kHz).
Everything is written to shards under the cache folder; a shard that exists is kept, so the command
can be stopped and started again, and the same seed gives the same corpus.

    python -m training.speech.corpus --hours 12

Whole shards are kept out for evaluation: the last ``HELD_OUT_SHARDS`` never reach training.
The speech of many speakers (`training.speech.chorus`) lies in shards of the same format.
"""

import argparse
import json
import math
import multiprocessing
import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import chain, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from training.cache import cache_folder

if TYPE_CHECKING:
    from hibari import Hibari

T = TypeVar("T")

SAMPLE_RATE_HZ = 24_000
SHARD_SENTENCES = 250
HELD_OUT_SHARDS = 2
WORDNET = Path("/usr/share/wordnet")
FORTUNES = Path("/usr/share/games/fortunes")
WORDS_MIN, WORDS_MAX = 3, 18
ONE_VOICE = "hibari"

Part = Literal["train", "sentences", "speakers"]
"""What an utterance is for: training, or testing on unseen sentences or on unseen speakers."""
Spoken: TypeAlias = tuple[NDArray[np.float32], Mapping[str, object]]
"""Samples ``[N]`` of one utterance, with the fields of its `CorpusEntry` but for its place."""


@dataclass(frozen=True)
class CorpusEntry:
    """One sentence and where its samples lie: ``samples[start:end]`` of its shard."""

    text: str
    shard: int
    start: int
    end: int
    speaker: str = ONE_VOICE
    part: Part = "train"
    restored: bool = False
    """Whether the sound is that of codes (`training.lm.restore`)."""

    @property
    def duration_s(self) -> float:
        """Length of the speech in seconds."""
        return (self.end - self.start) / SAMPLE_RATE_HZ


def sentences(seed: int = 0) -> list[str]:
    """Return every distinct usable sentence of the sources, in an order given by ``seed``.

    Sentences as people say them, a third of all, come first and last, every second one a clause of
    a definition; the middle of the list is definitions alone.
    """
    said = {tidy for text in (*_wordnet_examples(), *_fortunes()) if (tidy := _tidy(text))}
    defined = {tidy for text in _wordnet_definitions() if (tidy := _tidy(text))} - said
    spoken, clauses = sorted(said), sorted(defined)
    order = random.Random(seed)
    order.shuffle(spoken)
    order.shuffle(clauses)
    first = len(spoken) - len(spoken) // 10
    middle = max(first, len(clauses) - (len(spoken) - first))
    return [
        *_alternating(spoken[:first], clauses[:first]),
        *clauses[first:middle],
        *_alternating(spoken[first:], clauses[middle:]),
    ]


def _alternating(one: list[str], other: list[str]) -> Iterator[str]:
    pairs = chain.from_iterable(zip_longest(one, other))
    return (text for text in pairs if text is not None)


def _wordnet_glosses() -> Iterator[str]:
    if not WORDNET.is_dir():
        raise FileNotFoundError(f"{WORDNET} is missing: apt-get install wordnet-base")
    for part in ("noun", "verb", "adj", "adv"):
        for line in (WORDNET / f"data.{part}").read_text("utf-8", "replace").splitlines():
            yield line.partition("|")[2]


def _wordnet_examples() -> Iterator[str]:
    for gloss in _wordnet_glosses():
        yield from re.findall(r'"([^"]+)"', gloss)


def _wordnet_definitions() -> Iterator[str]:
    for gloss in _wordnet_glosses():
        definition = re.sub(r"\([^)]*\)", "", gloss.partition('"')[0])
        yield from definition.split(";")


def _fortunes() -> Iterator[str]:
    if not FORTUNES.is_dir():
        raise FileNotFoundError(f"{FORTUNES} is missing: apt-get install fortunes")
    for path in sorted(FORTUNES.iterdir()):
        if path.suffix:
            continue
        for fortune in path.read_text("utf-8", "replace").split("\n%\n"):
            paragraph = " ".join(fortune.split())
            yield from re.split(r"(?<=[.!?])\s+(?=[A-Z])", paragraph)


def _tidy(text: str) -> str | None:
    """Return ``text`` as one plain sentence, or None if it is not one."""
    text = " ".join(text.split())
    if not re.fullmatch(r"[A-Za-z ,.'?!-]+", text) or re.search(r"[.!?,'-]{2}|[A-Z]{2}|\.\S", text):
        return None
    if not WORDS_MIN <= len(text.split()) <= WORDS_MAX:
        return None
    text = text[0].upper() + text[1:]
    return text if text[-1] in ".?!" else text.rstrip(",-' ") + "."


@cache
def load_teacher() -> "Hibari":
    """Load the teacher, once a process."""
    from hibari import Hibari

    return Hibari()


def _speak_shard(task: tuple[Path, int, list[str]]) -> float:
    """Read one shard's sentences aloud; return the seconds of speech written."""
    folder, number, texts = task
    teacher = load_teacher()
    speech = ((np.asarray(teacher(text, seed=0), np.float32), {"text": text}) for text in texts)
    return write_shard(folder, number, speech)


def write_shard(folder: Path, number: int, speech: Iterable[Spoken]) -> float:
    """Write a shard; return the seconds written.

    A shard that has an index is whole: the index comes last, and neither file grows in place.
    """
    samples_path, index_path = shard_paths(folder, number)
    position, parts, index = 0, [], []
    for samples, fields in speech:
        parts.append((np.clip(samples, -1, 1) * 32767).astype(np.int16))
        index.append({**fields, "start": position, "end": position + len(samples)})
        position += len(samples)
    partial = samples_path.with_suffix(".partial")
    np.concatenate(parts).tofile(partial)
    partial.rename(samples_path)
    partial.write_text("\n".join(json.dumps(row) for row in index))
    partial.rename(index_path)
    return position / SAMPLE_RATE_HZ


def shard_paths(folder: Path, number: int) -> tuple[Path, Path]:
    """Return where the samples and the index of a shard lie."""
    return folder / f"{number:04d}.i16", folder / f"{number:04d}.jsonl"


class Corpus:
    """The speech on disk: utterances, and their samples by memory map.

    Raises FileNotFoundError if nothing has been spoken yet.
    """

    def __init__(self, cache: Path, name: str = "speech") -> None:
        self.folder = cache / name
        indexes = sorted(self.folder.glob("*.jsonl"))
        if not indexes:
            command = "training.speech.corpus" if name == "speech" else "training.speech.chorus"
            raise FileNotFoundError(f"no speech in {self.folder}: run python -m {command}")
        self.shards = [int(path.stem) for path in indexes]
        self.utterances = [
            CorpusEntry(shard=int(path.stem), **json.loads(line))
            for path in indexes
            for line in path.read_text().splitlines()
        ]
        self._maps = {
            number: np.memmap(shard_paths(self.folder, number)[0], dtype=np.int16, mode="r")
            for number in self.shards
        }

    @property
    def restored_shards(self) -> frozenset[int]:
        """Shards of which the codes alone were left: their sound has passed through the codec."""
        return frozenset(line.shard for line in self.utterances if line.restored)

    @property
    def held_out_shards(self) -> frozenset[int]:
        """Shards that training must not touch: those of another part, or else the last ones."""
        marked = frozenset(line.shard for line in self.utterances if line.part != "train")
        return marked or frozenset(self.shards[-HELD_OUT_SHARDS:])

    def samples(self, utterance: CorpusEntry) -> NDArray[np.float32]:
        """Return the samples of one utterance, ``[N]`` float32 in [-1, 1]."""
        raw = self._maps[utterance.shard][utterance.start : utterance.end]
        return np.divide(raw, 32768, dtype=np.float32)

    def shard_samples(self, number: int) -> NDArray[np.int16]:
        """Return all samples of a shard, ``[N]`` int16, memory-mapped."""
        return self._maps[number]


def derive_shards(
    name: str,
    derive: Callable[[Corpus, int], Iterable[Spoken]],
    first_shards: Mapping[str, int],
    *,
    workers: int,
    shards: int | None = None,
) -> None:
    """Make a corpus out of others, every shard that is missing.

    ``derive`` returns what becomes of a shard of another corpus, in a process of its own;
    ``first_shards`` has the number of the shard that the first of each of the others gives, if
    it exists, of which so many ``shards`` are taken (None: all).
    """
    folder = cache_folder() / name
    folder.mkdir(exist_ok=True)
    tasks = [
        (folder, source, number, first + number, derive)
        for source, first in first_shards.items()
        if any((folder.parent / source).glob("*.jsonl"))
        for number in Corpus(folder.parent, source).shards[:shards]
        if not shard_paths(folder, first + number)[1].exists()
    ]
    speak_shards(folder, _derive_shard, tasks, workers=workers)


def _derive_shard(
    task: tuple[Path, str, int, int, Callable[[Corpus, int], Iterable[Spoken]]],
) -> float:
    """Write what becomes of one shard of another corpus; return its seconds."""
    folder, source, number, to_number, derive = task
    return write_shard(folder, to_number, derive(Corpus(folder.parent, source), number))


def speak_shards(
    folder: Path,
    speak_shard: Callable[[T], float],
    tasks: Sequence[T],
    *,
    hours: float = math.inf,
    workers: int,
) -> None:
    """Speak one shard after the other until a corpus holds the hours asked for, or the last.

    ``speak_shard`` writes a shard and returns its seconds, in a process of its own, given one
    of ``tasks``, which are of the shards that are missing. What the corpus holds already
    counts.
    """
    wanted_s, have_s = hours * 3600, 0.0
    if any(folder.glob("*.jsonl")):
        have_s = sum(one.duration_s for one in Corpus(folder.parent, folder.name).utterances)
    with multiprocessing.Pool(workers) as pool, tqdm(total=hours, unit="h") as bar:
        bar.update(have_s / 3600)
        for seconds in pool.imap(speak_shard, tasks):
            have_s += seconds
            bar.update(seconds / 3600)
            if have_s >= wanted_s:
                pool.terminate()
                break


def main() -> None:
    """Speak sentences until the corpus holds the hours asked for."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--hours", type=float, default=12.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    folder = cache_folder() / "speech"
    folder.mkdir(parents=True, exist_ok=True)
    texts = sentences(args.seed)
    print(f"{len(texts)} sentences")
    tasks = [
        (folder, number, texts[start : start + SHARD_SENTENCES])
        for number, start in enumerate(range(0, len(texts), SHARD_SENTENCES))
        if not shard_paths(folder, number)[1].exists()
    ]
    speak_shards(folder, _speak_shard, tasks, hours=args.hours, workers=args.workers)


if __name__ == "__main__":
    main()
