"""Speakers made of four people whom flite reads as, at other sizes and with other spectra.

    python -m lab.training.speech.readers --hours 1

The teachers are two, and their bends and mixtures move alike. flite (Debian's package; its licence
is CMU's, like MIT's) carries voices built from recordings of four people: a Scot, two American men
and an American woman. Played at another rate (`lab.training.speech.perturb`), at a pace of their
own and through a spectrum that nobody else has, they are as many people as are asked for. They are
read at 16 kHz: the codec's prior fills in what is above. They lie in the corpus `readers`; those of
the first shard are kept out of training.
"""

import subprocess
import tempfile
from dataclasses import dataclass
from functools import partial

import numpy as np
import soundfile
from numpy.typing import NDArray

from lab.training.judging.judges import resample
from lab.training.speech.bends import bends, gains_of, speak_cast
from lab.training.speech.corpus import SAMPLE_RATE_HZ, corpus_parser, sentences
from lab.training.speech.perturb import coloured, played

VOICES = ("awb", "rms", "slt", "kal16")
# Of the rates at which each is played: the men (of 85 to 125 Hz) become women, the woman children.
RATES = {"awb": (0.8, 1.5), "rms": (0.85, 1.6), "slt": (0.65, 1.35), "kal16": (0.95, 1.7)}
PACES = (0.85, 1.2)
HELD_OUT_SHARDS = 1
GAINS = 513


@dataclass(frozen=True)
class Reader:
    """One of `VOICES`, played ``rate`` times as fast, at a pace and with gains of its own."""

    name: str
    voice: str
    rate: float
    pace: float
    gains: tuple[float, ...]
    """Factors of frequencies from 0 Hz to half of the sample rate, equally far apart."""


def readers(count: int, seed: int = 0) -> list[Reader]:
    """Return ``read-0000``, ``read-0001``...; the first stay the same whatever ``count`` is."""
    random = np.random.default_rng([seed, 3])
    made = []
    for number, bend in enumerate(bends(count, seed + 1)):
        voice = VOICES[int(random.integers(len(VOICES)))]
        rate = float(np.exp(random.uniform(*np.log(RATES[voice]))))
        pace = float(random.uniform(*PACES))
        gains = tuple(np.exp(gains_of(bend, GAINS)[:, 0]).tolist())
        made.append(Reader(f"read-{number:04d}", voice, rate, pace, gains))
    return made


def speak(text: str, reader: Reader) -> NDArray[np.float32]:
    """Return ``text`` ``[N]`` as a reader says it, at `SAMPLE_RATE_HZ`."""
    with tempfile.NamedTemporaryFile(suffix=".wav") as file:
        stretch = f"duration_stretch={reader.rate / reader.pace:.3f}"
        command = ["flite", "-voice", reader.voice, "--setf", stretch, "-t", text, "-o", file.name]
        subprocess.run(command, check=True)
        samples, rate_hz = soundfile.read(file.name, dtype="float32")
    sound = played(resample(samples, rate_hz, SAMPLE_RATE_HZ), reader.rate)
    return coloured(sound, np.array(reader.gains, np.float32))


def main() -> None:
    """Speak one shard after the other until there are the hours asked for."""
    args = corpus_parser(main.__doc__, hours=3.0).parse_args()
    texts = sentences(args.seed)
    speak_cast(
        "readers",
        speak,
        partial(readers, seed=args.seed),
        texts[len(texts) * 2 // 5 : len(texts) // 2],  # before those of `bends`
        held_out_shards=HELD_OUT_SHARDS,
        hours=args.hours,
        workers=args.workers,
    )


if __name__ == "__main__":
    main()
