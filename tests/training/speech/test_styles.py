from collections import Counter
from itertools import combinations

import numpy as np
import pytest

from training.speech.styles import LEAST_DISTANCE, VOICES, mixed_speakers, named_speakers


def test_mixtures_follow_from_the_seed_and_are_convex_and_unlike_each_other() -> None:
    mixtures = mixed_speakers(92, 0)
    assert mixtures[:20] == mixed_speakers(20, 0) != mixed_speakers(20, 1)
    for speaker in mixtures:
        assert len(speaker.shares) in {2, 3}
        assert speaker.shares.keys() <= set(VOICES)
        assert min(speaker.shares.values()) > 0
        assert sum(speaker.shares.values()) == pytest.approx(1, abs=1e-12)
    speakers = named_speakers() + mixtures
    assert len({speaker.name for speaker in speakers}) == len(speakers) == 120
    table = np.array([[one.shares.get(voice, 0.0) for voice in VOICES] for one in speakers])
    distances = [np.abs(one - other).sum() for one, other in combinations(table, 2)]
    assert min(distances) >= LEAST_DISTANCE
    genders = Counter(len({voice[1] for voice in one.shares}) for one in mixtures)
    accents = Counter(len({voice[0] for voice in one.shares}) for one in mixtures)
    assert genders[1] > 3 * genders[2] > 0
    assert accents[2] > 10
