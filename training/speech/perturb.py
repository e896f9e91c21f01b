"""More speakers out of the chorus: its speech played faster or slower.

    python -m training.speech.perturb

Played at another rate, pitch and formants move together, as they do between a smaller and a larger
throat: another speaker (speed perturbation, Ko et al. 2015, "Audio Augmentation for Speech
Recognition"; as new speakers, Yamamoto et al. 2019). Every shard of the corpus `kokoro` gives one
of `perturbed`, in which each of its speakers has one rate, kept for `SHARDS_ALIKE` shards so that
there are other utterances to prompt with. Who is kept out of training there is kept out here.
"""

import argparse
import zlib
from multiprocessing import Pool
from pathlib import Path

import numpy as np
import soxr
from numpy.typing import NDArray
from tqdm import tqdm

from training.cache import cache_folder
from training.speech.corpus import SAMPLE_RATE_HZ, Corpus, shard_paths, write_shard

# A rate nearer to 1 gives nobody new, one further from it nobody's voice.
LEAST_CHANGE, MOST_CHANGE = 1.06, 1.22
SHARDS_ALIKE = 8


def rate_of(speaker: str, shard: int) -> float:
    """Return how much faster a speaker is played in a shard, always the same for both."""
    random = np.random.default_rng([zlib.crc32(speaker.encode()), shard // SHARDS_ALIKE])
    change = float(np.exp(random.uniform(np.log(LEAST_CHANGE), np.log(MOST_CHANGE))))
    return change if random.random() < 0.5 else 1 / change


def played(samples: NDArray[np.float32], rate: float) -> NDArray[np.float32]:
    """Return speech ``[N]`` played ``rate`` times as fast, ``[N / rate]``, its pitch multiplied."""
    return np.asarray(soxr.resample(samples, SAMPLE_RATE_HZ * rate, SAMPLE_RATE_HZ), np.float32)


def _play_shard(task: tuple[Path, int]) -> float:
    """Play one shard; return the seconds of speech written."""
    cache, number = task
    corpus = Corpus(cache, "kokoro")
    speech = []
    for entry in corpus.utterances:
        if entry.shard != number:
            continue
        rate = rate_of(entry.speaker, number)
        fields = {
            "text": entry.text,
            "speaker": f"{entry.speaker}-{round(100 * rate)}",
            "part": entry.part,
        }
        speech.append((played(corpus.samples(entry), rate), fields))
    return write_shard(cache / "perturbed", number, speech)


def main() -> None:
    """Play every shard of the chorus that has not been played."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    cache = cache_folder()
    folder = cache / "perturbed"
    folder.mkdir(exist_ok=True)
    tasks = [
        (cache, number)
        for number in Corpus(cache, "kokoro").shards
        if not shard_paths(folder, number)[1].exists()
    ]
    with Pool(args.workers) as pool:
        spoken = list(tqdm(pool.imap(_play_shard, tasks), total=len(tasks), unit="shard"))
    print(f"{sum(spoken) / 3600:.2f} h more")


if __name__ == "__main__":
    main()
