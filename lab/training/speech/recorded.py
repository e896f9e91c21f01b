"""Speech of the other corpora as people would record it: what the model is prompted with.

    python -m lab.training.speech.recorded

Of every shard some utterances pass through a channel of their own (`lab.training.speech.channels`).
They lie in the corpus `recorded` and are prompts alone: what the model is to say stays clean.
"""

import argparse
from collections.abc import Iterator

import numpy as np

from lab.training.speech.channels import Samples, draw_channel, passed
from lab.training.speech.corpus import SAMPLE_RATE_HZ, Corpus, Spoken, derive_corpus
from models.voices.loudness import loudness_lufs
from models.voices.recording import LEVEL_LUFS

FIRST_SHARD = {
    "kokoro": 0,
    "crowd": 1000,
    "perturbed": 2000,
    "bent": 5000,
    "readers": 7000,
    "speech": 8000,
    "people": 9000,
}
"""Number of the shard of `recorded` that the first of a corpus gives."""
SHARE = 0.5
PEAK = 0.98


def uploaded(samples: Samples) -> Samples:
    """Return ``[N]`` as loud as the service makes a recording that is uploaded."""
    full = samples / np.abs(samples).max()
    gain = 10 ** ((LEVEL_LUFS - loudness_lufs(full, SAMPLE_RATE_HZ)) / 20)
    return full * np.float32(min(gain, PEAK))


def record(corpus: Corpus, number: int) -> Iterator[Spoken]:
    """Yield some utterances of a shard, each recorded in a way of its own."""
    random = np.random.default_rng([FIRST_SHARD[corpus.folder.name], number])
    for entry in corpus.utterances:
        if entry.shard != number or random.random() >= SHARE:
            continue
        sound = passed(corpus.samples(entry), draw_channel(random), random)
        yield (
            uploaded(sound),
            {"text": entry.text, "speaker": entry.speaker, "part": entry.part},
        )


def main() -> None:
    """Record every shard that has not been recorded."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--sources", nargs="+", choices=FIRST_SHARD, default=list(FIRST_SHARD))
    parser.add_argument("--shards", type=int, help="of each corpus at most; None: all")
    args = parser.parse_args()
    first = {source: FIRST_SHARD[source] for source in args.sources}
    derive_corpus("recorded", record, first, workers=args.workers, shards=args.shards)


if __name__ == "__main__":
    main()
