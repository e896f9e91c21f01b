"""Which utterances make a batch, and what is asked of each.

A batch is of one *pool*: a corpus, or the mixtures of all. Of a pool of people each person is drawn
as often as another, of the others each utterance.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from lab.training.lm.codes import CodedUtterance
from lab.training.lm.growing import LOOK_AHEADS, FrameWords, KnownText, known_text, words_of_symbols
from lab.training.lm.rests import rested, sample_rest
from lab.training.lm.rows import PIECES_UP_TO, Prompts, Row
from lab.training.speech.people import PERSON

POSITIONS = 2400  # of a batch, padding included
# Of the rows, by pool: `pool_of` says who is in which. A model that is to speak as anybody must not
# hear the named voices alone, and these are most of what was said, at other sizes too.
SHARES = {
    "people": 0.36,
    "texts": 0.2,
    "speech": 0.08,
    "kokoro": 0.14,
    "mixtures": 0.06,
    "bent": 0.05,
    "readers": 0.05,
    "perturbed": 0.06,
}
# People are heard by person, not by minute; of a source less where it is worse recorded.
PERSON_WEIGHTS = {"speechocean762": 0.5}
# The words hang on level 0: with the teacher's codes there, the further voices were understood but
# for 7.5 % of the words, with the model's own but for 18 %. Of the others more hang on the coarse.
AR_SHARE = 0.62
NAR_SHARES = (0.48, 0.3, 0.22)
ALL_DROPPED, PROMPT_DROPPED = 0.1, 0.05
GROWING = 0.3  # of the rows of level 0: their text grows
RECORDED_PROMPTS = 0.55  # of the prompts: as people record them; the built-in voices' are clean
PROMPT_FRAMES_MIN = 50
CORRUPTED_UP_TO = 0.1
# Draws cost a pass more: a third of the steps has them, in all of their rows of level 0.
SAMPLED_STEPS, SAMPLED_UP_TO = 0.3, 0.9


def pool_of(source: str, speaker: str) -> str:
    """Return what an utterance is drawn with: its corpus, or ``mixtures`` if a mixture says it.

    What was made of mixtures (``perturbed``) stays by itself.
    """
    mixed = speaker.startswith(("mixed-", "crowd-")) and source != "perturbed"
    return "mixtures" if mixed else source


def weights_of(pool: Sequence[CodedUtterance]) -> NDArray[np.float64]:
    """Return how often each utterance is drawn ``[N]``: each person as often as another.

    Utterances of teachers all weigh the same.
    """
    counts = Counter(one.speaker for one in pool)
    return np.array([
        PERSON_WEIGHTS.get(one.speaker.removeprefix(PERSON).partition("/")[0], 1.0)
        / counts[one.speaker]
        if one.speaker.startswith(PERSON)
        else 1.0
        for one in pool
    ])


def _shares(weights: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(weights / weights.sum(), np.float64)


class Batches:
    """Draws batches of some coded utterances; prompts are these, or what is ``recorded``."""

    words: FrameWords | None = None
    """Aligns frames with words, so that texts can grow in some rows; None: none does."""

    def __init__(
        self,
        utterances: Sequence[tuple[str, CodedUtterance]],
        recorded: Sequence[CodedUtterance],
        max_prompt_frames: int,
    ) -> None:
        pools: dict[str, list[CodedUtterance]] = {}
        for source, one in utterances:
            if one.phonemes:
                pools.setdefault(pool_of(source, one.speaker), []).append(one)
        self.pools = {
            name: sorted(pool, key=lambda utterance: len(utterance.codes))
            for name, pool in pools.items()
        }
        self._max_prompt_frames = max_prompt_frames
        self._weights = {name: weights_of(pool) for name, pool in self.pools.items()}
        self._pool_shares = _shares(np.array([SHARES[name] for name in self.pools]))
        self._prompts = Prompts([one for _, one in utterances], recorded)

    def draw(self, random: np.random.Generator, shortest: float = 1.0) -> list[Row]:
        """Draw utterances of like length that fill the batch, each with a task and a prompt.

        They are of the ``shortest`` share of their pool.
        """
        name = str(random.choice(list(self.pools), p=self._pool_shares))
        utterances, weights = self.pools[name], self._weights[name]
        pool = min(len(utterances), max(64, int(len(utterances) * shortest)))
        centre = int(random.choice(pool, p=_shares(weights[:pool])))
        prompt_frames = (PROMPT_FRAMES_MIN + self._max_prompt_frames) // 2
        count = int(np.clip(POSITIONS // (utterances[centre].positions + prompt_frames), 2, 64))
        first = int(np.clip(centre - 4 * count, 0, max(0, pool - 8 * count)))
        alike = np.arange(first, min(pool, first + 8 * count))
        chances = _shares(weights[alike])
        near = random.choice(alike, min(count, len(alike)), replace=False, p=chances)
        frames = int(random.integers(PROMPT_FRAMES_MIN, self._max_prompt_frames + 1))
        drawn = SAMPLED_UP_TO if random.random() < SAMPLED_STEPS else 0.0
        return [self._task(utterances[index], frames, drawn, random) for index in near]

    def _task(
        self,
        utterance: CodedUtterance,
        prompt_frames: int,
        sampled_up_to: float,
        random: np.random.Generator,
    ) -> Row:
        corrupted = float(random.uniform(0, CORRUPTED_UP_TO))
        dropped = random.random()
        null = bool(dropped < ALL_DROPPED)
        prompt = None
        if dropped >= ALL_DROPPED + PROMPT_DROPPED:
            pieces = int(random.integers(1, PIECES_UP_TO + 1))
            prompt = self._prompts.draw(utterance, prompt_frames, random, RECORDED_PROMPTS, pieces)
        level = 0
        if random.random() >= AR_SHARE:
            level = 1 + int(random.choice(len(NAR_SHARES), p=NAR_SHARES))
        drawn = float(random.uniform(0, sampled_up_to)) if level == 0 else 0.0
        codes = rested(utterance.codes, sample_rest(random), random)
        known = None
        if level == 0 and not null and random.random() < GROWING:
            known = self._growing(utterance, len(codes), int(random.choice(LOOK_AHEADS)))
        return Row(replace(utterance, codes=codes), level, prompt, null, corrupted, drawn, known)

    def _growing(self, utterance: CodedUtterance, frames: int, look_ahead: int) -> KnownText | None:
        """Return what is known of a text at each of so many frames; None: all of it, always."""
        if self.words is None:
            return None
        words = self.words.of(utterance)
        words = np.pad(words, (0, max(0, frames - len(words))), "edge")[:frames]
        return known_text(words, words_of_symbols(utterance.phonemes), look_ahead)
