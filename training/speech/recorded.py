"""Speech of the other corpora as people would record it: what the model is prompted with.

    python -m training.speech.recorded

Of every shard some utterances pass through a channel of their own (`training.speech.channels`).
They lie in the corpus `recorded` and are prompts alone: what the model is to say stays clean.
"""

import argparse
from multiprocessing import Pool
from pathlib import Path

import numpy as np
from tqdm import tqdm

from models.voices.loudness import loudness_lufs
from models.voices.recording import LEVEL_LUFS
from training.cache import cache_folder
from training.speech.channels import Samples, draw_channel, passed
from training.speech.corpus import SAMPLE_RATE_HZ, Corpus, shard_paths, write_shard

FIRST_SHARD = {"kokoro": 0, "crowd": 1000, "perturbed": 2000, "bent": 5000, "speech": 8000}
"""Number of the shard of `recorded` that the first of a corpus gives."""
SHARE = 0.5
PEAK = 0.98


def uploaded(samples: Samples) -> Samples:
    """Return ``[N]`` as loud as the service makes a recording that is uploaded."""
    full = samples / np.abs(samples).max()
    gain = 10 ** ((LEVEL_LUFS - loudness_lufs(full, SAMPLE_RATE_HZ)) / 20)
    return full * np.float32(min(gain, PEAK))


def _record_shard(task: tuple[Path, str, int]) -> float:
    """Record some utterances of one shard; return the seconds of speech written."""
    cache, source, number = task
    corpus = Corpus(cache, source)
    random = np.random.default_rng([FIRST_SHARD[source], number])
    speech = []
    for entry in corpus.utterances:
        if entry.shard != number or random.random() >= SHARE:
            continue
        sound = passed(corpus.samples(entry), draw_channel(random), random)
        speech.append((
            uploaded(sound),
            {"text": entry.text, "speaker": entry.speaker, "part": entry.part},
        ))
    return write_shard(cache / "recorded", FIRST_SHARD[source] + number, speech)


def main() -> None:
    """Record every shard that has not been recorded."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--sources", nargs="+", choices=FIRST_SHARD, default=list(FIRST_SHARD))
    parser.add_argument("--shards", type=int, help="of each corpus at most; None: all")
    args = parser.parse_args()
    cache = cache_folder()
    folder = cache / "recorded"
    folder.mkdir(exist_ok=True)
    tasks = [
        (cache, source, number)
        for source in args.sources
        if any((cache / source).glob("*.jsonl"))
        for number in Corpus(cache, source).shards[: args.shards]
        if not shard_paths(folder, FIRST_SHARD[source] + number)[1].exists()
    ]
    with Pool(args.workers) as pool:
        spoken = list(tqdm(pool.imap(_record_shard, tasks), total=len(tasks), unit="shard"))
    print(f"{sum(spoken) / 3600:.2f} h more")


if __name__ == "__main__":
    main()
