"""Make the corpus of many speakers: Kokoro's English voices and mixtures of them, in turn.

    python -m lab.training.speech.chorus --rounds 14

A *round* is one shard in which every voice to be shipped says ten sentences, every other named
voice one, and six of the mixtures three: the corpus is balanced whenever it is stopped, and grows
with more rounds without changing those it has. Two shards come before all rounds and never reach
training: the first has sentences that the voices to be shipped say nowhere else, the second has
speakers that are heard nowhere else.

No sentence is said twice, here or by the one-voice corpus: that takes sentences from the front of
the list, this one from its end.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import count, islice

import numpy as np
from numpy.typing import NDArray

from lab.training.cache import cache_folder
from lab.training.speech.corpus import (
    SAMPLE_RATE_HZ,
    Part,
    Spoken,
    corpus_parser,
    make_corpus,
    sentences,
)
from lab.training.speech.kokoro import Kokoro
from lab.training.speech.styles import Speaker, mixed_speakers, named_speakers

SHIPPED = (
    *("af_bella", "af_sarah", "am_fenrir", "am_michael", "am_puck"),
    *("bf_emma", "bf_isabella", "bm_george"),
)
"""The named speakers that become voices of the service: they say most of a round."""
MIXED_SPEAKERS, UNSEEN_SPEAKERS = 480, 20
FIRST_MIXED = 72  # before the unseen ones in the order of `mixed_speakers`, the rest after them
HELD_OUT_SHARDS = 2
# How often a speaker of each kind is heard in a round, and in the shards that are held out. Of the
# mixtures a round hears the next `MIXED_IN_ROUND`, in turn: a model that is to imitate must hear
# many, each more than once (in rounds 0 to 40 of the codes that are kept it was 18 of 72, once).
SHIPPED_A_ROUND, NAMED_A_ROUND, MIXED_IN_ROUND, MIXED_A_ROUND = 10, 1, 6, 3
SHIPPED_HELD_OUT, UNSEEN_HELD_OUT = 3, 3
WORDS_MIN, WORDS_MAX = 4, 14
SPEEDS = (0.95, 1.1)

# Measured on the one-voice corpus (the median of 50 utterances): so loud is its speech without the
# pauses. Kokoro's voices differ by a factor of two, and the codec should see one level.
SPEECH_RMS = 0.055
PAUSE_BELOW_DB = -40.0  # under the loudest 10 ms
PEAK = 0.98


@dataclass(frozen=True)
class ScriptLine:
    """What is to be said, by whom, and how fast."""

    text: str
    speaker: Speaker
    speed: float
    part: Part


def script(texts: Sequence[str], seed: int) -> Iterator[list[ScriptLine]]:
    """Yield the lines of each shard: unseen sentences, unseen speakers, then round after round.

    The script ends where the texts do, which nobody else says.
    """
    named = named_speakers()
    mixed = mixed_speakers(MIXED_SPEAKERS + UNSEEN_SPEAKERS, seed)
    unseen = mixed[FIRST_MIXED : FIRST_MIXED + UNSEEN_SPEAKERS]
    mixed = mixed[:FIRST_MIXED] + mixed[FIRST_MIXED + UNSEEN_SPEAKERS :]
    random = np.random.default_rng(seed)
    taken = 0
    for part, cast in _casts(named, mixed, unseen):
        spoken = texts[taken : taken + len(cast)]
        if len(spoken) < len(cast):
            return
        taken += len(cast)
        order = random.permutation(len(cast))
        speeds = random.uniform(*SPEEDS, size=len(cast))
        yield [
            ScriptLine(text, cast[place], float(speed), part)
            for text, place, speed in zip(spoken, order, speeds, strict=True)
        ]


def _casts(
    named: list[Speaker], mixed: list[Speaker], unseen: list[Speaker]
) -> Iterator[tuple[Part, list[Speaker]]]:
    shipped = [speaker for speaker in named if speaker.name in SHIPPED]
    others = [speaker for speaker in named if speaker.name not in SHIPPED]
    yield "sentences", shipped * SHIPPED_HELD_OUT
    yield "speakers", unseen * UNSEEN_HELD_OUT
    for first in count(step=MIXED_IN_ROUND):
        turn = [mixed[(first + place) % len(mixed)] for place in range(MIXED_IN_ROUND)]
        cast = shipped * SHIPPED_A_ROUND + others * NAMED_A_ROUND + turn * MIXED_A_ROUND
        yield "train", cast


def usable_sentences(seed: int = 0) -> list[str]:
    """Return the sentences that are neither too short nor too long, from the end of the list."""
    return [
        text for text in reversed(sentences(seed)) if WORDS_MIN <= len(text.split()) <= WORDS_MAX
    ]


def levelled(samples: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return speech ``[N]`` at `SPEECH_RMS` without its pauses, or as close as `PEAK` allows.

    It must not be silent.
    """
    window = SAMPLE_RATE_HZ // 100
    blocks = samples[: len(samples) // window * window].reshape(-1, window).astype(np.float64)
    power = (blocks**2).mean(1)
    speech = power[power > power.max() * 10 ** (PAUSE_BELOW_DB / 10)]
    gain = min(SPEECH_RMS / np.sqrt(speech.mean()), PEAK / np.abs(samples).max())
    return samples * np.float32(gain)


@cache
def _teacher(threads: int) -> Kokoro:
    """Load the teacher, once a process."""
    return Kokoro(cache_folder(), threads)


def speak_lines(lines: list[ScriptLine], threads: int = 1) -> Iterator[Spoken]:
    """Yield one shard's lines as the teacher says them."""
    teacher = _teacher(threads)
    for line in lines:
        sound = levelled(teacher.speak(line.text, line.speaker, line.speed))
        yield sound, {"text": line.text, "speaker": line.speaker.name, "part": line.part}


def main() -> None:
    """Speak rounds until there are as many as asked for."""
    parser = corpus_parser(main.__doc__)
    parser.add_argument("--rounds", type=int, default=14)
    parser.add_argument("--first", type=int, default=0, help="shard; 8: shards 0 to 7 are coded")
    parser.add_argument("--threads", type=int, default=1, help="of each worker")
    args = parser.parse_args()
    every = ((lines, args.threads) for lines in script(usable_sentences(args.seed), args.seed))
    shards = islice(enumerate(every), args.first, HELD_OUT_SHARDS + args.rounds)
    make_corpus("kokoro", speak_lines, shards, workers=args.workers)


if __name__ == "__main__":
    main()
