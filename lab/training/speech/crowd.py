"""Make a corpus of very many speakers, each of whom says little.

    python -m lab.training.speech.crowd --shards 60

The chorus teaches nine voices well; what teaches a model to speak as anybody is how many it has
heard, and how unlike they are. Every shard here has speakers of its own, each of whom says
`SENTENCES_EACH` sentences: mixtures of Kokoro's voices that nobody else is, up to twice as far from
the mean of all voices as a mixture can be (at 1, 1.3, 1.6 and 2 times as far, the mean cosine of
twelve speakers' embeddings is 0.66, 0.61, 0.56 and 0.53).

Sentences come from the middle of the list, which neither the one-voice corpus nor the chorus
reaches.
"""

from itertools import islice

import numpy as np

from lab.training.speech.chorus import (
    MIXED_SPEAKERS,
    SPEEDS,
    UNSEEN_SPEAKERS,
    ScriptLine,
    speak_lines,
    usable_sentences,
)
from lab.training.speech.corpus import corpus_parser, make_corpus
from lab.training.speech.styles import exaggerated, mixed_speakers

SPEAKERS_A_SHARD, SENTENCES_EACH = 25, 4
STRENGTH_MAX = 2.0
FIRST_SENTENCE = 40_000


def script(texts: list[str], shards: int, seed: int) -> list[list[ScriptLine]]:
    """Return the lines of the first ``shards`` shards; those of a shard do not depend on how many.

    There must be as many texts, which nobody else says, as there are lines.
    """
    taken = MIXED_SPEAKERS + UNSEEN_SPEAKERS  # the chorus's
    mixtures = mixed_speakers(taken + shards * SPEAKERS_A_SHARD, seed)[taken:]
    lines_a_shard = SPEAKERS_A_SHARD * SENTENCES_EACH
    found = []
    for shard in range(shards):
        random = np.random.default_rng([seed, shard])
        mixed = mixtures[shard * SPEAKERS_A_SHARD : (shard + 1) * SPEAKERS_A_SHARD]
        strengths = random.uniform(1, STRENGTH_MAX, SPEAKERS_A_SHARD)
        speakers = [
            exaggerated(one, float(strength), one.name.replace("mixed", "crowd"))
            for one, strength in zip(mixed, strengths, strict=True)
        ]
        spoken = texts[shard * lines_a_shard : (shard + 1) * lines_a_shard]
        speeds = random.uniform(*SPEEDS, lines_a_shard)
        found.append([
            ScriptLine(text, speaker, float(speed), "train")
            for text, speaker, speed in zip(spoken, speakers * SENTENCES_EACH, speeds, strict=True)
        ])
    return found


def main() -> None:
    """Speak the shards that are missing."""
    parser = corpus_parser(main.__doc__)
    parser.add_argument("--shards", type=int, default=40)
    parser.add_argument("--first", type=int, default=0, help="shard; 22: 0 to 21 are coded")
    args = parser.parse_args()
    every = script(usable_sentences(args.seed)[FIRST_SENTENCE:], args.shards, args.seed)
    shards = islice(enumerate((lines,) for lines in every), args.first, None)
    make_corpus("crowd", speak_lines, shards, workers=args.workers)


if __name__ == "__main__":
    main()
