from collections import Counter
from itertools import islice

import numpy as np
import pytest

from training.speech.chorus import (
    HELD_OUT_SHARDS,
    MIXED_A_ROUND,
    MIXED_IN_ROUND,
    MIXED_SPEAKERS,
    NAMED_A_ROUND,
    PEAK,
    SHIPPED,
    SHIPPED_A_ROUND,
    SPEECH_RMS,
    UNSEEN_SPEAKERS,
    Line,
    levelled,
    script,
    usable_sentences,
)
from training.speech.corpus import FORTUNES, SHARD_SENTENCES, WORDNET, sentences
from training.speech.styles import VOICES

ROUNDS = 14
TEXTS = [f"sentence {number}" for number in range(10_000)]


def shards(rounds: int = ROUNDS, seed: int = 0) -> list[list[Line]]:
    return list(islice(script(TEXTS, seed), HELD_OUT_SHARDS + rounds))


def test_the_script_follows_from_the_seed_and_grows_without_changing() -> None:
    assert shards(rounds=5) == shards()[: HELD_OUT_SHARDS + 5]
    assert shards(rounds=5, seed=1) != shards(rounds=5)


def test_a_round_is_of_the_voices_to_be_shipped_above_all() -> None:
    for lines in shards()[HELD_OUT_SHARDS:]:
        turns = Counter(line.speaker.name for line in lines)
        assert len(turns) == len(VOICES) + MIXED_IN_ROUND
        assert {turns[voice] for voice in SHIPPED} == {SHIPPED_A_ROUND}
        assert {turns[name] for name in set(VOICES) - set(SHIPPED)} == {NAMED_A_ROUND}
        assert {turns[name] for name in turns.keys() - set(VOICES)} == {MIXED_A_ROUND}
        assert {line.part for line in lines} == {"train"}


def test_every_mixture_has_its_turn() -> None:
    turns = MIXED_SPEAKERS // MIXED_IN_ROUND
    heard = [
        {line.speaker.name for line in lines} - set(VOICES)
        for lines in shards(rounds=turns + 1)[HELD_OUT_SHARDS:]
    ]
    assert len(set[str]().union(*heard[:turns])) == MIXED_SPEAKERS
    assert heard[turns] == heard[0]


def test_held_out_shards_have_the_voices_to_be_shipped_or_nobody_who_is_heard() -> None:
    sentences_part, speakers_part, *rounds = shards()
    seen = {line.speaker.name for lines in rounds for line in lines}
    assert {line.part for line in sentences_part} == {"sentences"}
    assert {line.speaker.name for line in sentences_part} == set(SHIPPED)
    assert {line.part for line in speakers_part} == {"speakers"}
    unseen = Counter(line.speaker.name for line in speakers_part)
    assert len(unseen) == UNSEEN_SPEAKERS
    assert set(unseen.values()) == {3}
    assert not unseen.keys() & seen


def test_no_sentence_is_said_twice() -> None:
    texts = [line.text for lines in shards() for line in lines]
    assert len(set(texts)) == len(texts)


def test_speeds_differ_and_keep_within_bounds() -> None:
    speeds = [line.speed for lines in shards() for line in lines]
    assert 0.95 <= min(speeds) < 0.96
    assert 1.09 < max(speeds) <= 1.1


def test_a_script_ends_with_its_last_whole_shard() -> None:
    assert [len(lines) for lines in script(TEXTS[:500], 0)] == [24, 60, 118, 118, 118]


@pytest.mark.skipif(
    not (WORDNET.is_dir() and FORTUNES.is_dir()), reason="needs wordnet-base and fortunes"
)
def test_the_one_voice_corpus_says_none_of_the_sentences() -> None:
    one_voice = set(sentences()[: 200 * SHARD_SENTENCES])
    usable = usable_sentences()
    lines = [line for shard in islice(script(usable, 0), 16) for line in shard]
    assert not one_voice & {line.text for line in lines}
    assert {len(line.text.split()) for line in lines} == set(range(4, 15))


@pytest.mark.parametrize("loudness", [0.003, 0.05, 0.3])
def test_speech_has_one_level_whatever_its_loudness_and_its_pauses(loudness: float) -> None:
    random = np.random.default_rng(0)
    speech = random.normal(scale=loudness, size=24_000).astype(np.float32)
    pause = random.normal(scale=loudness / 1000, size=48_000).astype(np.float32)
    samples = levelled(np.concatenate([pause, speech]))
    assert samples.dtype == np.float32
    assert np.sqrt((samples[48_000:] ** 2).mean()) == pytest.approx(SPEECH_RMS, rel=1e-3)


def test_a_level_that_would_clip_is_not_reached() -> None:
    samples = np.full(24_000, 0.001, np.float32)
    samples[::2400] = 0.5
    assert np.abs(levelled(samples)).max() == pytest.approx(PEAK, rel=1e-3)
