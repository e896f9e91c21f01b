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


def test_mixtures_follow_from_the_seed_and_stay_when_more_are_asked_for() -> None:
    assert mixed_speakers(92, 0)[:20] == mixed_speakers(20, 0)
    assert mixed_speakers(20, 0) != mixed_speakers(20, 1)


def test_mixtures_are_convex_and_of_two_or_three_voices() -> None:
    for speaker in mixed_speakers(92, 0):
        assert len(speaker.shares) in {2, 3}
        assert speaker.shares.keys() <= set(VOICES)
        assert min(speaker.shares.values()) > 0
        assert sum(speaker.shares.values()) == pytest.approx(1, abs=1e-12)


def test_no_two_speakers_are_nearly_the_same() -> None:
    speakers = named_speakers() + mixed_speakers(92, 0)
    assert len({speaker.name for speaker in speakers}) == len(speakers) == 120
    table = np.array([[one.shares.get(voice, 0.0) for voice in VOICES] for one in speakers])
    distances = [np.abs(one - other).sum() for one, other in combinations(table, 2)]
    assert min(distances) >= LEAST_DISTANCE


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


def test_most_mixtures_keep_to_one_gender_and_some_cross_accents() -> None:
    mixtures = [speaker.shares.keys() for speaker in mixed_speakers(92, 0)]
    genders = Counter(len({voice[1] for voice in voices}) for voices in mixtures)
    accents = Counter(len({voice[0] for voice in voices}) for voices in mixtures)
    assert genders[1] > 3 * genders[2] > 0
    assert accents[2] > 10


def test_a_speaker_has_the_accent_of_the_largest_share() -> None:
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
    np.testing.assert_array_equal(read_style(tmp_path, named_speakers()[10]), one[:, 0])


def test_a_package_that_is_not_the_known_one_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    npm = tmp_path / "npm"
    npm.write_text('#!/bin/sh\necho other > "$4/kokoro-js-1.2.1.tgz"\n')
    npm.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    with pytest.raises(ValueError, match=r"not the kokoro-js@1\.2\.1"):
        fetch_styles(tmp_path)
    assert not (tmp_path / "kokoro-styles").exists()
    npm.write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(RuntimeError, match="npm pack"):
        fetch_styles(tmp_path)
