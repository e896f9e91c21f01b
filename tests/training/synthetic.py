"""A corpus of noise in the form of speech, for tests of the stages of training."""

from pathlib import Path

import numpy as np

from training.speech.corpus import SAMPLE_RATE_HZ, write_shard

TEXTS = ("Most of our graduates are employed.", "He who waits, wins!", "In an irate manner.")


def write_corpus(folder: Path, *, shards: int = 4, lines: int = 3, seconds: float = 1.0) -> None:
    """Write shards of a few utterances each, of two speakers."""
    folder.mkdir(parents=True)
    random = np.random.default_rng(0)
    for number in range(shards):
        speech = []
        for line in range(lines):
            samples = random.normal(scale=0.05, size=int(seconds * SAMPLE_RATE_HZ))
            fields = {"text": TEXTS[line % len(TEXTS)], "speaker": f"one-{line % 2}"}
            speech.append((samples.astype(np.float32), fields))
        write_shard(folder, number, speech)
