"""Make the corpus of real texts: what `lab.training.speech.texts` gives, read by every teacher.

    python -m lab.training.speech.reading --shards 60

Each shard is read by the fast teacher, by some of the speakers that it is bent to, by some of
flite's, and by the voices of the slow one that ship. Sentences of the first shard reach training
nowhere. The corpus is `texts`.
"""

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

import numpy as np
from numpy.typing import NDArray

from lab.training.speech import readers as flite
from lab.training.speech.bends import UNBENT, Bend, bends, speak_bent
from lab.training.speech.chorus import SHIPPED, ScriptLine, levelled, speak_lines
from lab.training.speech.corpus import Part, Spoken, corpus_parser, make_corpus
from lab.training.speech.readers import Reader, readers
from lab.training.speech.styles import named_speakers
from lab.training.speech.texts import mixed_texts

NAME: Final = "texts"
SHARD_TEXTS: Final = 120
HELD_OUT_SHARDS: Final = 1
TEACHER_SHARE, BENT_SHARE, READ_SHARE = 0.42, 0.2, 0.2
"""Of a shard, the rest is the slow teacher's."""
SPEAKERS_EACH: Final = 6  # bent ones and readers of a shard
KNOWN_SPEAKERS: Final = (100, 1500)  # by number: others of their sentences are in their own corpora
SPEEDS: Final = (0.95, 1.1)

Caster = Bend | Reader | str


def cast_of(number: int, seed: int = 0) -> list[Caster]:
    """Return who reads each text of a shard: the teacher bent or not, a reader, a slow voice."""
    random = np.random.default_rng([seed, 6, number])
    chosen = random.integers(*KNOWN_SPEAKERS, 2 * SPEAKERS_EACH)
    bent = [bends(int(one) + 1, seed)[-1] for one in chosen[:SPEAKERS_EACH]]
    read = [readers(int(one) + 1, seed)[-1] for one in chosen[SPEAKERS_EACH:]]
    found: list[Caster] = []
    for place, draw in enumerate(random.random(SHARD_TEXTS)):
        if draw < TEACHER_SHARE:
            found.append(UNBENT)
        elif draw < TEACHER_SHARE + BENT_SHARE:
            found.append(bent[place % len(bent)])
        elif draw < TEACHER_SHARE + BENT_SHARE + READ_SHARE:
            found.append(read[place % len(read)])
        else:
            found.append(SHIPPED[place % len(SHIPPED)])
    return found


def part_of(number: int) -> Part:
    """Return what a shard is for."""
    return "sentences" if number < HELD_OUT_SHARDS else "train"


def read_aloud(texts: Sequence[str], number: int, seed: int, part: Part) -> Iterator[Spoken]:
    """Yield a shard's texts as its cast reads them."""
    random = np.random.default_rng([seed, 7, number])
    voices = {one.name: one for one in named_speakers()}
    for text, one in zip(texts, cast_of(number, seed), strict=True):
        speed = float(random.uniform(*SPEEDS))
        if isinstance(one, str):
            yield from speak_lines([ScriptLine(text, voices[one], speed, part)])
            continue
        sound: NDArray[np.float32]
        sound = speak_bent(text, one) if isinstance(one, Bend) else flite.speak(text, one)
        yield levelled(sound), {"text": text, "speaker": one.name, "part": part}


def main() -> None:
    """Read the shards that are missing."""
    parser = corpus_parser(main.__doc__)
    parser.add_argument("--shards", type=int, default=60)
    args = parser.parse_args()
    texts = mixed_texts(args.seed)
    shards = [
        (number, (list(islice(texts, SHARD_TEXTS)), number, args.seed, part_of(number)))
        for number in range(args.shards)
    ]
    make_corpus(NAME, read_aloud, shards, workers=args.workers)


if __name__ == "__main__":
    main()
