from itertools import islice

from training.speech import chorus
from training.speech.chorus import Line, script

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
