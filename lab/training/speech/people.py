"""Real people, from a folder of recordings that lies beside the repository.

    python -m lab.training.speech.people

The folder has two tables: ``index.tsv``, a recording a row, and ``speakers.tsv``. It is read where
it lies, by default in ``../shared/data/people`` of the repository; the corpus `people` is made of
it in the cache, and nothing of it is committed. Every recording says who speaks. What is said is a
target of the language model only where its words are known: an English sentence with its text. All
others have an empty text; they are prompts, and teach the codec.

Text that came with a recording is taken as it is. Text that Whisper heard has to be spoken at a
pace that speech has; spelled letters are refused, as Whisper writes them in many ways. Some people
are kept out of training, in a shard of their own.
"""

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import numpy as np
import soundfile
from numpy.typing import NDArray

from app.settings import BUILTIN_MODEL
from lab.training.judging.judges import resample
from lab.training.speech.chorus import levelled
from lab.training.speech.corpus import SAMPLE_RATE_HZ, Part, Spoken, corpus_parser, make_corpus
from models.text import TextError, normalise, phonemize
from models.text.characters import clean

PEOPLE: Final = BUILTIN_MODEL.parent.parent / "shared" / "data" / "people"
NAME: Final = "people"
PERSON: Final = "person-"
"""What the names of people begin with in the corpus; then come source and person."""
PEOPLE_A_SHARD: Final = 24
HELD_OUT: Final = {
    "librispeech": 10,
    "picovoice": 4,
    "speechocean762": 4,
    "common_voice": 3,
    "vctk": 3,
}
"""How many people of each source training never hears."""
PHONEMES: Final = (12, 100)  # of a target: shorter ones are words, longer ones the model never says
PACE: Final = (6.0, 24.0)  # phonemes a second: anything else was heard wrongly
HEARD_ALONE: Final = frozenset({"alnum"})  # sources whose text Whisper cannot know: spelled, digits

Kind = Literal["sentence", "words"]


@dataclass(frozen=True)
class PersonalRecording:
    """A row of ``index.tsv``."""

    file: str
    speaker: str
    source: str
    seconds: float
    bandwidth_hz: float
    """Above it the recording has nothing."""
    snr_db: float
    text: str
    text_by: str
    """``source``, ``whisper-tiny``, or ``-`` where there is no text."""
    language: str
    kind: Kind

    @property
    def name(self) -> str:
        """What the corpus calls who speaks."""
        return f"{PERSON}{self.speaker}"


def read_index(folder: Path) -> list[PersonalRecording]:
    """Return the recordings of a folder.

    Raises FileNotFoundError if it is not there.
    """
    path = folder / "index.tsv"
    if not path.exists():
        raise FileNotFoundError(f"{path} is missing: this corpus is no part of the repository")
    with path.open(encoding="utf-8", newline="") as file:
        return [
            PersonalRecording(
                file=row["file"],
                speaker=row["speaker"],
                source=row["source"],
                seconds=float(row["seconds"]),
                bandwidth_hz=float(row["bandwidth"]),
                snr_db=float(row["snr"]),
                text=row["text"],
                text_by=row["text_by"],
                language=row["language"],
                kind="words" if row["kind"] == "words" else "sentence",
            )
            for row in csv.DictReader(file, dialect="excel-tab")
        ]


def told_text(recording: PersonalRecording) -> str:
    """Return what is said as the front end writes it; empty where it is not known for certain.

    A sentence that breaks off ends with a comma, as pieces of a long one do.
    """
    if recording.kind == "words" or recording.language != "en" or not recording.text:
        return ""
    heard = recording.text_by != "source"
    if heard and recording.source in HEARD_ALONE:
        return ""
    try:
        text = normalise(clean(recording.text)).strip().strip("\"'")
        if text[-1:] not in {*".,?!:;"}:
            text += "," if heard else "."
        phonemes = phonemize(text)
    except TextError:
        return ""
    if not PHONEMES[0] <= len(phonemes) <= PHONEMES[1]:
        return ""
    if not PACE[0] <= len(phonemes) / recording.seconds <= PACE[1]:
        return ""
    return text[0].upper() + text[1:]


def held_out(recordings: Sequence[PersonalRecording], seed: int = 0) -> set[str]:
    """Return who is kept out of training: of `HELD_OUT` sources, people with two known texts."""
    known: dict[str, dict[str, int]] = {}
    for one in recordings:
        if one.source in HELD_OUT and told_text(one):
            counts = known.setdefault(one.source, {})
            counts[one.speaker] = counts.get(one.speaker, 0) + 1
    random = np.random.default_rng([seed, 4])
    found: set[str] = set()
    for source, count in HELD_OUT.items():
        able = sorted(name for name, texts in known.get(source, {}).items() if texts > 1)
        found |= set(random.permutation(able)[:count].tolist())
    return found


def casts(
    recordings: Sequence[PersonalRecording], kept_out: set[str], seed: int = 0
) -> Iterator[tuple[list[PersonalRecording], Part]]:
    """Yield what each shard holds: first who is kept out, then the others in a random order.

    All recordings of a person are in one shard.
    """
    of: dict[str, list[PersonalRecording]] = {}
    for one in recordings:
        of.setdefault(one.speaker, []).append(one)
    others = np.random.default_rng([seed, 5]).permutation(sorted(set(of) - kept_out)).tolist()
    if kept_out:
        yield [one for name in sorted(kept_out) for one in of[name]], "speakers"
    for first in range(0, len(others), PEOPLE_A_SHARD):
        names = others[first : first + PEOPLE_A_SHARD]
        yield [one for name in names for one in of[name]], "train"


def read(path: Path) -> NDArray[np.float32]:
    """Return a recording ``[N]``, mono, of `SAMPLE_RATE_HZ`."""
    sound, rate_hz = soundfile.read(path, dtype="float32", always_2d=True)
    return resample(np.asarray(sound.mean(1), np.float32), int(rate_hz), SAMPLE_RATE_HZ)


def spoken(folder: Path, recordings: Sequence[PersonalRecording], part: Part) -> Iterator[Spoken]:
    """Yield the recordings of a shard at the level that all corpora have."""
    for one in recordings:
        fields: Mapping[str, object] = {
            "text": told_text(one),
            "speaker": one.name,
            "part": part,
            "band_hz": one.bandwidth_hz,
            "snr_db": one.snr_db,
        }
        yield levelled(read(folder / one.file)), fields


def main() -> None:
    """Read every shard that has not been read."""
    parser = corpus_parser(main.__doc__)
    parser.add_argument("--folder", type=Path, default=PEOPLE)
    args = parser.parse_args()
    recordings = read_index(args.folder)
    shards = enumerate(
        (args.folder, *cast)
        for cast in casts(recordings, held_out(recordings, args.seed), args.seed)
    )
    make_corpus(NAME, spoken, shards, workers=args.workers)


if __name__ == "__main__":
    main()
