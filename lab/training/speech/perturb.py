"""More speakers out of the chorus and the crowd: at other sizes, and with other spectra.

    python -m lab.training.speech.perturb

Played at another rate, pitch and formants move together, as they do between a smaller and a larger
throat: another speaker (speed perturbation, Ko et al. 2015, "Audio Augmentation for Speech
Recognition"; as new speakers, Yamamoto et al. 2019). A spectrum of its own, coloured as
`lab.training.speech.bends` does, makes that speaker unlike all others. Every shard of the corpora
`kokoro` and `crowd` gives one of `perturbed`, in which each of its speakers becomes `VERSIONS`
others, kept for `SHARDS_ALIKE` shards so that there are other utterances to prompt with. Who is
kept out of training there is kept out here.
"""

import argparse
import zlib
from collections.abc import Iterator

import numpy as np
import soxr
from numpy.typing import NDArray

from lab.training.speech.bends import COLOUR_DB, COLOURS, TILTS_DB, Bend, gains_of
from lab.training.speech.chorus import levelled
from lab.training.speech.corpus import SAMPLE_RATE_HZ, Corpus, Spoken, derive_corpus

LEAST_CHANGE = 1.06  # a rate nearer to 1 gives nobody new
MOST_CHANGE = {"kokoro": 1.22, "crowd": 1.4}
"""The largest change of a rate, by corpus: what is at the edge of training is imitated worst."""
FIRST_SHARD = {"kokoro": 0, "crowd": 1000}
"""Number of the shard of `perturbed` that the first of a corpus gives."""
SHARDS_ALIKE = 8
VERSIONS = 3
GAINS = 513


def _random(speaker: str, shard: int, version: int) -> np.random.Generator:
    """Return what decides on a version of a speaker."""
    return np.random.default_rng([zlib.crc32(speaker.encode()), shard // SHARDS_ALIKE, version])


def rate_of(source: str, speaker: str, shard: int, version: int = 0) -> float:
    """Return how much faster a corpus's speaker is played in a shard, always the same for all."""
    random = _random(speaker, shard, version)
    change = float(np.exp(random.uniform(np.log(LEAST_CHANGE), np.log(MOST_CHANGE[source]))))
    return change if random.random() < 0.5 else 1 / change


def gains_in(speaker: str, shard: int, version: int) -> NDArray[np.float32]:
    """Return the gains ``[GAINS]`` of a speaker in a shard, of `coloured`."""
    random = _random(speaker, shard, VERSIONS + version)
    tilt_db, colour_db = random.uniform(*TILTS_DB), random.normal(0, COLOUR_DB, COLOURS)
    bend = Bend(speaker, tilt_db=float(tilt_db), colour_db=tuple(colour_db.tolist()))
    return np.exp(gains_of(bend, GAINS)[:, 0])


def played(samples: NDArray[np.float32], rate: float) -> NDArray[np.float32]:
    """Return speech ``[N]`` played ``rate`` times as fast, ``[N / rate]``, its pitch multiplied."""
    return np.asarray(soxr.resample(samples, SAMPLE_RATE_HZ * rate, SAMPLE_RATE_HZ), np.float32)


def coloured(samples: NDArray[np.float32], gains: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return ``[N]``, each frequency multiplied by its gain.

    The gains are of frequencies from 0 Hz to half of the sample rate, equally far apart.
    """
    spectrum = np.fft.rfft(samples)
    places = np.linspace(0, 1, len(spectrum))
    spectrum *= np.interp(places, np.linspace(0, 1, len(gains)), gains)
    return np.fft.irfft(spectrum, len(samples)).astype(np.float32)


def play(corpus: Corpus, number: int) -> Iterator[Spoken]:
    """Yield the utterances of a shard, each speaker at other rates and with other spectra."""
    for entry in corpus.utterances:
        if entry.shard != number:
            continue
        for version in range(VERSIONS):
            rate = rate_of(corpus.folder.name, entry.speaker, number, version)
            gains = gains_in(entry.speaker, number, version)
            fields = {
                "text": entry.text,
                "speaker": f"{entry.speaker}-{number // SHARDS_ALIKE}-{version}",
                "part": entry.part,
                "restored": entry.restored,
            }
            yield levelled(coloured(played(corpus.samples(entry), rate), gains)), fields


def main() -> None:
    """Play every shard of the chorus and of the crowd that has not been played."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    derive_corpus("perturbed", play, FIRST_SHARD, workers=args.workers)


if __name__ == "__main__":
    main()
