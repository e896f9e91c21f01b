"""Thousands of speakers that the fast teacher gives when source and filter are bent.

    python -m lab.training.speech.bends --hours 12

The teacher predicts pitch and smooth spectra and makes sound of them by formula: what throats
differ in can be changed before that, each by itself. Of the source: pitch, how far it moves, its
roughness, breath and the spectrum's tilt; of the filter: where formants are (each third of the
spectrum by a factor of its own), how sharp they are, and a colour that nobody else has. Speech of
any number of speakers then costs as little as that of one. They lie in the corpus `bent`; those of
the first shards are kept out of training.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from typing import TYPE_CHECKING, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from lab.training.speech.chorus import levelled
from lab.training.speech.corpus import (
    SAMPLE_RATE_HZ,
    Part,
    Spoken,
    corpus_parser,
    load_teacher,
    make_corpus,
    sentences,
)

if TYPE_CHECKING:
    from hibari import Hibari

SPEAKERS_A_SHARD, SENTENCES_EACH = 25, 4
SHARD_SENTENCES = SPEAKERS_A_SHARD * SENTENCES_EACH
HELD_OUT_SHARDS = 2
# From a deep man to a child; the teacher is a woman of some 190 Hz.
PITCHES, SPEEDS = (0.48, 1.45), (0.8, 1.25)
MOVES = (0.4, 1.6)  # how far pitch moves, of what the teacher's does
# Formants follow pitch, as throats do, but not strictly.
FORMANT_EXPONENT, FORMANT_SPREAD = 0.4, 0.06
BAND_SPREAD = 0.04  # of the formants of each third, beside that
BANDS_HZ = (0.0, 900.0, 2_500.0, 12_000.0)
SHARPNESSES = (0.85, 1.2)  # of the spectrum's fine shape; 1 is the teacher's
BROAD_BINS = 81  # over which a spectrum is averaged to tell its fine shape from its broad one
TILTS_DB = (-4.0, 3.0)  # an octave above 500 Hz
BREATHS_DB = (-6.0, 10.0)  # of noise
COLOUR_DB, COLOURS = 4.0, 10  # standard deviation, and of how many bands
ROUGHNESS_MAX = 0.03  # of pitch, from frame to frame
_NEPER = float(np.log(10) / 20)  # a decibel, of natural logarithms


class Named(Protocol):
    """Somebody who speaks."""

    @property
    def name(self) -> str:
        """What the corpus calls them."""


W = TypeVar("W", bound=Named)


@dataclass(frozen=True)
class Bend:
    """What a speaker has other than the teacher; by default nothing."""

    name: str
    pitch: float = 1.0
    formant: float = 1.0
    speed: float = 1.0
    move: float = 1.0
    bands: tuple[float, ...] = (1.0, 1.0, 1.0)
    sharpness: float = 1.0
    tilt_db: float = 0.0
    breath_db: float = 0.0
    colour_db: tuple[float, ...] = ()
    roughness: float = 0.0


UNBENT = Bend("hibari")


def bend_named(name: str) -> Bend:
    """Return the speaker of that name, as `bends` makes it by default; any other is the teacher."""
    if not name.startswith("bent-"):
        return UNBENT
    number = int(name.removeprefix("bent-"))
    return bends(number + 1)[number]


def bends(count: int, seed: int = 0) -> list[Bend]:
    """Return ``bent-0000``, ``bent-0001``...; the first stay the same whatever ``count`` is."""
    random = np.random.default_rng([seed, 2])
    made = []
    for number in range(count):
        pitch = float(np.exp(random.uniform(*np.log(PITCHES))))
        formant = pitch**FORMANT_EXPONENT * float(np.exp(random.normal(0, FORMANT_SPREAD)))
        made.append(
            Bend(
                name=f"bent-{number:04d}",
                pitch=pitch,
                formant=formant,
                speed=float(random.uniform(*SPEEDS)),
                move=float(random.uniform(*MOVES)),
                bands=tuple(np.exp(random.normal(0, BAND_SPREAD, 3)).tolist()),
                sharpness=float(random.uniform(*SHARPNESSES)),
                tilt_db=float(random.uniform(*TILTS_DB)),
                breath_db=float(random.uniform(*BREATHS_DB)),
                colour_db=tuple(random.normal(0, COLOUR_DB, COLOURS).tolist()),
                roughness=float(ROUGHNESS_MAX * random.random() ** 3),
            )
        )
    return made


def stretched(
    spectra: NDArray[np.float32], factor: float, bands: tuple[float, ...] = (1.0, 1.0, 1.0)
) -> NDArray[np.float32]:
    """Return ``[bins, T]`` with what was at bin k at bin ``k * factor``; the top is repeated.

    The bins go from 0 Hz to half of the sample rate. Each of `BANDS_HZ` has a factor of its own
    beside that; between them the frequencies join.
    """
    bins = len(spectra)
    edges = np.array(BANDS_HZ) / (SAMPLE_RATE_HZ / 2) * (bins - 1)
    moved = np.concatenate([[0.0], np.cumsum(np.diff(edges) * np.array(bands))]) * factor
    places = np.minimum(np.interp(np.arange(bins), moved, edges), bins - 1)
    if factor * bands[-1] < 1:  # past the last edge
        places = np.where(np.arange(bins) > moved[-1], bins - 1, places)
    below = np.minimum(places.astype(np.int64), bins - 2)
    weight = (places - below).astype(np.float32)[:, None]
    mixed: NDArray[np.float32] = spectra[below] * (1 - weight) + spectra[below + 1] * weight
    return mixed


def teacher_outputs(teacher: "Hibari", phonemes: str, speed: float) -> list[NDArray[np.float32]]:
    """Return what the teacher makes sound from: spectra ``[bins, T]``, and last pitch ``[T]``."""
    inputs = {
        "ids": np.array([teacher.ids(phonemes)], np.int64),
        "speed": np.array([speed], np.float32),
    }
    return [output[0] for output in teacher.sess.run(None, inputs)]


def gains_of(bend: Bend, bins: int) -> NDArray[np.float32]:
    """Return what a speaker's tilt and colour add to logarithmic spectra, ``[bins, 1]``."""
    frequencies = np.arange(bins) * (SAMPLE_RATE_HZ / 2) / (bins - 1)
    decibels = bend.tilt_db * np.log2(np.maximum(frequencies, 500.0) / 500.0)
    if bend.colour_db:
        points = np.geomspace(100.0, 10_000.0, len(bend.colour_db))
        decibels += np.interp(np.log(np.maximum(frequencies, 1.0)), np.log(points), bend.colour_db)
    return (_NEPER * decibels).astype(np.float32)[:, None]


def _sharpened(spectra: NDArray[np.float32], sharpness: float) -> NDArray[np.float32]:
    """Return logarithmic spectra ``[bins, T]``, what is not their broad shape multiplied."""
    if sharpness == 1:
        return spectra
    half = BROAD_BINS // 2
    padded = np.pad(spectra, ((half + 1, half), (0, 0)), mode="edge").cumsum(0, dtype=np.float64)
    broad = ((padded[BROAD_BINS:] - padded[:-BROAD_BINS]) / BROAD_BINS).astype(np.float32)
    return broad + np.float32(sharpness) * (spectra - broad)


def bent_pitch(pitch: NDArray[np.float32], bend: Bend, piece: int) -> NDArray[np.float32]:
    """Return the speaker's pitch ``[T]`` in Hz, 0 where there is none, of the teacher's.

    ``piece`` is the number of the sentence in its text: each has a roughness of its own.
    """
    voiced = pitch > 0
    if (bend.move == 1 and not bend.roughness) or not voiced.any():
        return pitch * bend.pitch
    log = np.log(np.maximum(pitch, 1e-3))
    middle = float(np.median(log[voiced]))
    rough = np.random.default_rng([1, piece]).normal(0, bend.roughness, len(pitch))
    bent = np.exp(middle + (log - middle) * bend.move + rough) * bend.pitch
    return np.where(voiced, bent, 0).astype(np.float32)


def speak(teacher: "Hibari", text: str, bend: Bend) -> NDArray[np.float32]:
    """Return ``text`` ``[N]`` as the teacher says it, bent; its noise is the same every time."""
    from hibari import dsp

    random = np.random.default_rng(0)
    pieces = []
    for piece, phonemes in enumerate(teacher.phonemize(text)):
        *spectra, phase, pitch = teacher_outputs(teacher, phonemes, bend.speed)
        harmonic, dispersion, noise, free = (
            stretched(part, bend.formant, bend.bands) for part in spectra
        )
        gains = gains_of(bend, len(harmonic))
        harmonic, noise, free = (
            _sharpened(part, bend.sharpness) + gains for part in (harmonic, noise, free)
        )
        noise = noise + np.float32(_NEPER * bend.breath_db)
        pitch = bent_pitch(pitch, bend, piece)
        pieces.append(dsp.synth(harmonic, dispersion, noise, free, phase, pitch, random))
    return np.concatenate(pieces)


def speak_bent(text: str, bend: Bend) -> NDArray[np.float32]:
    """Return ``text`` ``[N]`` as the teacher says it, bent."""
    return speak(load_teacher(), text, bend)


def speak_cast(
    name: str,
    say: Callable[[str, W], NDArray[np.float32]],
    make_cast: Callable[[int], list[W]],
    texts: Sequence[str],
    *,
    held_out_shards: int,
    hours: float,
    workers: int,
) -> None:
    """Make a corpus of many speakers, each of whom says `SENTENCES_EACH` sentences of one shard.

    ``say`` returns a text ``[N]`` as somebody says it, in a process of its own; ``make_cast``
    so many speakers, of whom the first stay the same whatever their number is. Speakers of the
    first ``held_out_shards`` are kept out of training; ``hours`` count what the corpus holds
    already.
    """
    count = len(texts) // SHARD_SENTENCES
    cast = make_cast(count * SPEAKERS_A_SHARD)
    shards = [
        (
            number,
            (
                say,
                texts[number * SHARD_SENTENCES : (number + 1) * SHARD_SENTENCES],
                cast[number * SPEAKERS_A_SHARD : (number + 1) * SPEAKERS_A_SHARD],
                "speakers" if number < held_out_shards else "train",
            ),
        )
        for number in range(count)
    ]
    make_corpus(name, _said, shards, hours=hours, workers=workers)


def _said(
    say: Callable[[str, W], NDArray[np.float32]], texts: Sequence[str], cast: list[W], part: Part
) -> Iterator[Spoken]:
    """Yield one shard's sentences, its speakers in turn."""
    for text, one in zip(texts, cycle(cast), strict=False):
        yield levelled(say(text, one)), {"text": text, "speaker": one.name, "part": part}


def main() -> None:
    """Speak one shard after the other until there are the hours asked for."""
    args = corpus_parser(main.__doc__, hours=12.0).parse_args()
    # The one-voice corpus begins at the front of the list, the chorus at its end.
    texts = sentences(args.seed)
    speak_cast(
        "bent",
        speak_bent,
        partial(bends, seed=args.seed),
        texts[len(texts) // 2 : len(texts) * 9 // 10],
        held_out_shards=HELD_OUT_SHARDS,
        hours=args.hours,
        workers=args.workers,
    )


if __name__ == "__main__":
    main()
