"""Who speaks and who says what: it follows from a seed, grows without changing, repeats nothing."""

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import chain, combinations, islice

import numpy as np
import pytest

from lab.training.speech import chorus, crowd, readers, styles
from lab.training.speech.styles import LEAST_DISTANCE, mixed_speakers, named_speakers

TEXTS = [f"sentence {number}" for number in range(10_000)]
SAMPLED: dict[str, Callable[[int, int], Sequence[object]]] = {
    "mixtures": mixed_speakers,
    "readers": readers.readers,
    "the chorus": lambda shards, seed: [*islice(chorus.script(TEXTS, seed), shards)],
    "the crowd": lambda shards, seed: crowd.script(TEXTS, shards, seed),
}


@pytest.mark.parametrize("draw", SAMPLED.values(), ids=SAMPLED)
def test_what_is_drawn_follows_from_the_seed_and_grows_without_changing(draw) -> None:
    assert draw(3, 0) == draw(5, 0)[:3] != draw(3, 1)


def test_mixtures_are_convex_and_unlike_each_other() -> None:
    mixtures = mixed_speakers(92, 0)
    for speaker in mixtures:
        assert len(speaker.shares) in {2, 3}
        assert speaker.shares.keys() <= set(styles.VOICES)
        assert min(speaker.shares.values()) > 0
        assert sum(speaker.shares.values()) == pytest.approx(1, abs=1e-12)
    speakers = named_speakers() + mixtures
    assert len({speaker.name for speaker in speakers}) == len(speakers) == 120
    table = np.array([[one.shares.get(voice, 0.0) for voice in styles.VOICES] for one in speakers])
    distances = [np.abs(one - other).sum() for one, other in combinations(table, 2)]
    assert min(distances) >= LEAST_DISTANCE
    genders = Counter(len({voice[1] for voice in one.shares}) for one in mixtures)
    accents = Counter(len({voice[0] for voice in one.shares}) for one in mixtures)
    assert genders[1] > 3 * genders[2] > 0
    assert accents[2] > 10


def test_readers_keep_within_bounds() -> None:
    many = readers.readers(200)
    assert {one.voice for one in many} == set(readers.VOICES)
    for one in many:
        assert readers.RATES[one.voice][0] <= one.rate <= readers.RATES[one.voice][1]
        assert readers.PACES[0] <= one.pace <= readers.PACES[1]


@pytest.mark.slow
def test_no_sentence_is_said_twice_and_a_speaker_of_the_crowd_is_in_one_shard_alone() -> None:
    shards = [*islice(chorus.script(TEXTS, 0), 16)]
    speeds = [line.speed for line in chain(*shards)]
    assert 0.95 <= min(speeds) < 0.96 < 1.09 < max(speeds) <= 1.1
    assert [len(shard) for shard in chorus.script(TEXTS[:500], 0)] == [24, 60, 118, 118, 118]
    many = crowd.script(TEXTS, 3, 0)
    said = [Counter(line.speaker.name for line in shard) for shard in many]
    assert {*chain(*map(Counter.values, said))} == {crowd.SENTENCES_EACH}
    assert len({*chain(*said)}) == 3 * crowd.SPEAKERS_A_SHARD
    for script in (shards, many):
        texts = [line.text for line in chain(*script)]
        assert len(set(texts)) == len(texts)
