import torch

from models.config import ModelConfig
from models.valle import Valle
from training.lm.translate import Parallel, sources, translate


def model(levels: int, seed: int) -> Valle:
    torch.manual_seed(seed)
    config = ModelConfig(
        width=8, layers=1, heads=2, kv_heads=1, ffn=16, levels=levels, codes=32,
        phonemes=("a", "b"), shared_tables=True,
    )  # fmt: skip
    return Valle(config)


def test_each_level_takes_over_from_one_that_was_told_as_much() -> None:
    assert sources(4, 8) == [0, 1, 2, 4]
    assert sources(8, 8) == list(range(8))
    assert sources(2, 2) == [0, 1]


def test_the_same_codes_give_the_same_model() -> None:
    old, new = model(4, 0), model(4, 1)
    codes = torch.arange(32)[:, None].expand(32, 4)
    translate(old, new, Parallel(codes, codes))
    for name, tensor in old.state_dict().items():
        torch.testing.assert_close(new.state_dict()[name], tensor)


def test_permuted_codes_give_a_model_that_says_the_same() -> None:
    old, new = model(4, 0), model(4, 1)
    order = torch.randperm(32, generator=torch.Generator().manual_seed(2))
    codes = torch.arange(32)[:, None].expand(32, 4)
    translate(old, new, Parallel(codes, order[codes]))
    said = torch.randint(32, (7, 4), generator=torch.Generator().manual_seed(3))
    for level in range(4):
        ids = [1, 3, 4, 2]
        prompt = said[:3]
        before, after = (
            old.prefix(ids, level, prompt=prompt),
            new.prefix(ids, level, prompt=order[prompt]),
        )
        if level == 0:
            one = old.ar_logits(before, said)[:, :-1]
            other = new.ar_logits(after, order[said])[:, order]
        else:
            one = old.nar_logits(before, said, level)
            other = new.nar_logits(after, order[said], level)[:, order]
        torch.testing.assert_close(one, other)


def test_fewer_levels_hear_the_sums_that_more_levels_heard() -> None:
    """Where a new code stands for one set of old ones, its tables sum up to theirs."""
    old, new = model(8, 0), model(4, 1)
    frames = torch.randint(32, (32, 8), generator=torch.Generator().manual_seed(0))
    codes = torch.arange(32)[:, None].expand(32, 4)
    translate(old, new, Parallel(frames, codes))
    for level in range(1, 4):
        heard = old.embed_response(frames, sources(4, 8)[level])
        torch.testing.assert_close(new.embed_response(codes, level), heard)
