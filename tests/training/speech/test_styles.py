from collections import Counter
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from training.speech.styles import (
    LEAST_DISTANCE,
    STYLE_WIDTH,
    TABLE_LENGTHS,
    VOICES,
    Speaker,
    exaggerated,
    fetch_styles,
    mixed_speakers,
    named_speakers,
    read_style,
)


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


def test_an_exaggerated_speaker_is_so_much_further_from_the_mean_and_keeps_the_accent() -> None:
    (mixed,) = mixed_speakers(1, 0)
    mean = 1 / len(VOICES)
    further = exaggerated(mixed, 1.5, "crowd-000")
    assert further.name == "crowd-000"
    assert sum(further.shares.values()) == pytest.approx(1, abs=1e-12)
    assert further.accent == mixed.accent
    for voice in VOICES:
        before = mixed.shares.get(voice, 0.0)
        assert further.shares[voice] - mean == pytest.approx(1.5 * (before - mean))
    # The accent is that of the largest share.
    assert Speaker("x", {"af_sky": 0.6, "bm_lewis": 0.4}).accent == "en-us"
    assert Speaker("x", {"af_sky": 0.2, "am_adam": 0.3, "bm_lewis": 0.5}).accent == "en-gb"


def test_a_style_table_is_the_weighted_sum_of_its_voices(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    one, other = random.normal(size=(2, TABLE_LENGTHS, 1, STYLE_WIDTH)).astype("<f4")
    one.tofile(tmp_path / "af_sky.bin")
    other.tofile(tmp_path / "bm_lewis.bin")
    table = read_style(tmp_path, Speaker("x", {"af_sky": 0.25, "bm_lewis": 0.75}))
    assert table.dtype == np.float32
    np.testing.assert_allclose(table, (0.25 * one + 0.75 * other)[:, 0], atol=1e-6)


@pytest.mark.parametrize(
    ("npm", "error", "message"),
    [
        ('echo other > "$4/kokoro-js-1.2.1.tgz"', ValueError, r"not the kokoro-js@1\.2\.1"),
        ("exit 1", RuntimeError, "npm pack"),
    ],
)
def test_a_package_that_is_not_the_known_one_is_refused(
    npm: str, error: type[Exception], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "npm").write_text(f"#!/bin/sh\n{npm}\n")
    (tmp_path / "npm").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    with pytest.raises(error, match=message):
        fetch_styles(tmp_path)
    assert not (tmp_path / "kokoro-styles").exists()
