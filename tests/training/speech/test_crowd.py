from itertools import chain

from training.speech.crowd import SENTENCES_EACH, SPEAKERS_A_SHARD, script

TEXTS = [f"Sentence {number}." for number in range(1000)]


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
