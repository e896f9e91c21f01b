from collections import Counter
from itertools import islice

import numpy as np
import pytest

from training.speech import chorus
from training.speech.chorus import PEAK, SHIPPED, SPEECH_RMS, Line, levelled, script
from training.speech.corpus import FORTUNES, SHARD_SENTENCES, WORDNET, sentences
from training.speech.styles import VOICES

ROUNDS = 14
TEXTS = [f"sentence {number}" for number in range(10_000)]


def shards(rounds: int = ROUNDS, seed: int = 0) -> list[list[Line]]:
    return list(islice(script(TEXTS, seed), chorus.HELD_OUT_SHARDS + rounds))


def test_the_script_follows_from_the_seed_grows_without_changing_and_repeats_no_sentence() -> None:
    assert shards(rounds=5) == shards()[: chorus.HELD_OUT_SHARDS + 5]
    assert shards(rounds=5, seed=1) != shards(rounds=5)
    lines = [line for shard in shards() for line in shard]
    assert len({line.text for line in lines}) == len(lines)
    speeds = [line.speed for line in lines]
    assert 0.95 <= min(speeds) < 0.96 < 1.09 < max(speeds) <= 1.1
    assert [len(shard) for shard in script(TEXTS[:500], 0)] == [24, 60, 118, 118, 118]


def test_a_round_is_of_the_voices_to_be_shipped_above_all_and_every_mixture_has_its_turn() -> None:
    mixtures = []
    for lines in shards(rounds=chorus.MIXED_SPEAKERS // chorus.MIXED_IN_ROUND + 1)[2:]:
        turns = Counter(line.speaker.name for line in lines)
        mixtures.append(turns.keys() - set(VOICES))
        assert len(mixtures[-1]) == chorus.MIXED_IN_ROUND
        for names, count in (
            (set(SHIPPED), chorus.SHIPPED_A_ROUND),
            (set(VOICES) - set(SHIPPED), chorus.NAMED_A_ROUND),
            (mixtures[-1], chorus.MIXED_A_ROUND),
        ):
            assert {turns[name] for name in names} == {count}
        assert {line.part for line in lines} == {"train"}
    assert len(set[str]().union(*mixtures[:-1])) == chorus.MIXED_SPEAKERS
    assert mixtures[-1] == mixtures[0]


def test_held_out_shards_have_the_voices_to_be_shipped_or_nobody_who_is_heard() -> None:
    sentences_part, speakers_part, *rounds = shards()
    seen = {line.speaker.name for lines in rounds for line in lines}
    assert {(line.part, line.speaker.name) for line in sentences_part} == {
        ("sentences", name) for name in SHIPPED
    }
    assert {line.part for line in speakers_part} == {"speakers"}
    unseen = Counter(line.speaker.name for line in speakers_part)
    assert (len(unseen), set(unseen.values())) == (chorus.UNSEEN_SPEAKERS, {3})
    assert not unseen.keys() & seen


@pytest.mark.skipif(
    not (WORDNET.is_dir() and FORTUNES.is_dir()), reason="needs wordnet-base and fortunes"
)
def test_the_one_voice_corpus_says_none_of_the_sentences() -> None:
    one_voice = set(sentences()[: 200 * SHARD_SENTENCES])
    lines = [line for shard in islice(script(chorus.usable_sentences(), 0), 16) for line in shard]
    assert not one_voice & {line.text for line in lines}
    assert {len(line.text.split()) for line in lines} == set(range(4, 15))


@pytest.mark.parametrize("loudness", [0.003, 0.05, 0.3])
def test_speech_has_one_level_whatever_its_pauses_unless_it_would_clip(loudness: float) -> None:
    random = np.random.default_rng(0)
    speech = random.normal(scale=loudness, size=24_000).astype(np.float32)
    pause = random.normal(scale=loudness / 1000, size=48_000).astype(np.float32)
    samples = levelled(np.concatenate([pause, speech]))
    assert samples.dtype == np.float32
    assert np.sqrt((samples[48_000:] ** 2).mean()) == pytest.approx(SPEECH_RMS, rel=1e-3)
    peaks = np.where(np.arange(24_000) % 2400, 0.001, 0.5).astype(np.float32)
    assert np.abs(levelled(peaks)).max() == pytest.approx(PEAK, rel=1e-3)
