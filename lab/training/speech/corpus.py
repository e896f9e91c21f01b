"""Make the corpus: English sentences, and a teacher reading them.

Sentences come from the example phrases and definitions of WordNet (Debian's ``wordnet-base``) and
from Debian's ``fortunes``; the teacher is ``hibari-tts`` (Apache-2.0, one American voice, 24 kHz).
Everything is written to shards under the cache folder; a shard that exists is kept, so the command
can be stopped and started again, and the same seed gives the same corpus.

    python -m lab.training.speech.corpus --hours 12

Whole shards are kept out for evaluation: the last ``HELD_OUT_SHARDS`` never reach training.
The speech of many speakers (`lab.training.speech.chorus`) lies in shards of the same format.
"""

import argparse
import json
import math
import multiprocessing
import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import chain, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from lab.training.cache import cache_folder

if TYPE_CHECKING:
    from hibari import Hibari

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
    """One sentence and where its samples lie: ``samples[start:end]`` of its shard.

    Its text is empty where nobody knows what is said.
    """

    text: str
    shard: int
    start: int
    end: int
    speaker: str = ONE_VOICE
    part: Part = "train"
    restored: bool = False
    """Whether the sound is that of codes (`lab.training.lm.restore`)."""
    band_hz: float = SAMPLE_RATE_HZ / 2
    """Above it the recording has nothing, whatever was said (`lab.training.speech.people`)."""
    snr_db: float = 60.0
    """Of speech over what is heard in its pauses; teachers have no noise."""

    @property
    def duration_s(self) -> float:
        """Length of the speech in seconds."""
        return (self.end - self.start) / SAMPLE_RATE_HZ


def sentences(seed: int = 0) -> list[str]:
    """Return every distinct usable sentence of the sources, in an order given by ``seed``.

    Sentences as people say them, a third of all, come first and last, every second one a clause of
    a definition; the middle of the list is definitions alone.
    """
    spoken = said_sentences()
    defined = {tidy for text in _wordnet_definitions() if (tidy := _tidy(text))}
    clauses = sorted(defined - set(spoken))
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


def said_sentences() -> list[str]:
    """Return every distinct usable sentence that people say, sorted."""
    texts = (*_wordnet_examples(), *fortune_sentences())
    return sorted({tidy for text in texts if (tidy := _tidy(text))})


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


def fortune_sentences() -> Iterator[str]:
    """Yield the sentences of all fortunes, with whatever marks they have."""
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


def _read_aloud(texts: list[str]) -> Iterator[Spoken]:
    teacher = load_teacher()
    for text in texts:
        yield np.asarray(teacher(text, seed=0), np.float32), {"text": text}


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
            command = (
                "lab.training.speech.corpus" if name == "speech" else "lab.training.speech.chorus"
            )
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


def corpus_parser(about: str | None, *, hours: float | None = None) -> argparse.ArgumentParser:
    """Return the parser of a command that makes a corpus; ``hours`` are the usual ones, if any."""
    parser = argparse.ArgumentParser(description=about)
    if hours is not None:
        parser.add_argument("--hours", type=float, default=hours)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    return parser


def make_corpus(
    name: str,
    speech: Callable[..., Iterable[Spoken]],
    shards: Iterable[tuple[int, tuple[Any, ...]]],
    *,
    hours: float = math.inf,
    workers: int,
) -> None:
    """Make shards that are missing until a corpus holds the hours asked for, or the last.

    ``speech`` yields the utterances of a shard, in a process of its own, given the arguments that
    stand with its number. What the corpus holds already counts.
    """
    folder = cache_folder() / name
    folder.mkdir(parents=True, exist_ok=True)
    tasks = [
        (folder, number, speech, given)
        for number, given in shards
        if not shard_paths(folder, number)[1].exists()
    ]
    wanted_s, have_s = hours * 3600, 0.0
    if any(folder.glob("*.jsonl")):
        have_s = sum(one.duration_s for one in Corpus(folder.parent, name).utterances)
    with multiprocessing.Pool(workers) as pool, tqdm(total=hours, unit="h") as bar:
        bar.update(have_s / 3600)
        for seconds in pool.imap(_make_shard, tasks):
            have_s += seconds
            bar.update(seconds / 3600)
            if have_s >= wanted_s:
                pool.terminate()
                break


def _make_shard(
    task: tuple[Path, int, Callable[..., Iterable[Spoken]], tuple[Any, ...]],
) -> float:
    folder, number, speech, given = task
    return write_shard(folder, number, speech(*given))


def derive_corpus(
    name: str,
    derive: Callable[[Corpus, int], Iterable[Spoken]],
    first_shards: Mapping[str, int],
    *,
    workers: int,
    shards: int | None = None,
) -> None:
    """Make a corpus out of others: ``derive`` yields what becomes of a shard of one of them.

    ``first_shards`` has the number of the shard that the first of each of the others gives, if it
    exists; so many ``shards`` of each are taken (None: all).
    """
    cache = cache_folder()
    found = [
        (first + number, (derive, source, number))
        for source, first in first_shards.items()
        if any((cache / source).glob("*.jsonl"))
        for number in Corpus(cache, source).shards[:shards]
    ]
    make_corpus(name, _derived, found, workers=workers)


def _derived(
    derive: Callable[[Corpus, int], Iterable[Spoken]], source: str, number: int
) -> Iterable[Spoken]:
    return derive(Corpus(cache_folder(), source), number)


def main() -> None:
    """Speak sentences until the corpus holds the hours asked for."""
    args = corpus_parser(main.__doc__, hours=12.0).parse_args()
    texts = sentences(args.seed)
    print(f"{len(texts)} sentences")
    starts = range(0, len(texts), SHARD_SENTENCES)
    shards = enumerate((texts[start : start + SHARD_SENTENCES],) for start in starts)
    make_corpus("speech", _read_aloud, shards, hours=args.hours, workers=args.workers)


if __name__ == "__main__":
    main()
