from itertools import chain

from training.speech.chorus import MIXED_SPEAKERS, UNSEEN_SPEAKERS
from training.speech.crowd import SENTENCES_EACH, SPEAKERS_A_SHARD, STRENGTH_MAX, script
from training.speech.styles import VOICES, mixed_speakers

TEXTS = [f"Sentence {number}." for number in range(1000)]
MEAN = 1 / len(VOICES)


def test_every_speaker_says_a_few_sentences_in_one_shard_alone_however_many_there_are() -> None:
    shards = script(TEXTS, 3, 0)
    names = [[line.speaker.name for line in shard] for shard in shards]
    assert len(set(chain(*names))) == 3 * SPEAKERS_A_SHARD
    for said in names:
        assert {said.count(name) for name in said} == {SENTENCES_EACH}
    texts = [line.text for line in chain(*shards)]
    assert len(set(texts)) == len(texts)
    assert shards[:2] == script(TEXTS, 2, 0)
    assert script(TEXTS, 1, 1) != script(TEXTS, 1, 0)


def test_nobody_is_one_of_the_chorus_or_nearer_to_the_mean_than_a_mixture() -> None:
    taken = MIXED_SPEAKERS + UNSEEN_SPEAKERS
    mixtures = mixed_speakers(taken + SPEAKERS_A_SHARD, 0)[taken:]
    (shard,) = script(TEXTS, 1, 0)
    strengths = set()
    for line, mixed in zip(shard, mixtures, strict=False):
        voice = max(mixed.shares, key=mixed.shares.__getitem__)
        strength = (line.speaker.shares[voice] - MEAN) / (mixed.shares[voice] - MEAN)
        assert 1 <= strength <= STRENGTH_MAX
        strengths.add(round(strength, 6))
    assert len(strengths) == SPEAKERS_A_SHARD
