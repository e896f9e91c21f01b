import pytest
import torch

from lab.training.lm.translate import Parallel, translate
from models.config import ModelConfig
from models.valle import Valle

SAME = torch.arange(32)[:, None].expand(32, 4)


def model(levels: int, seed: int) -> Valle:
    torch.manual_seed(seed)
    config = ModelConfig(
        width=8, layers=1, heads=2, kv_heads=1, ffn=16, levels=levels, codes=32,
        phonemes=("a", "b"), shared_tables=True,
    )  # fmt: skip
    return Valle(config)


@pytest.mark.parametrize("level", range(4))
def test_permuted_codes_give_a_model_that_says_the_same(level: int) -> None:
    old, new = model(4, 0), model(4, 1)
    order = torch.randperm(32, generator=torch.Generator().manual_seed(2))
    translate(old, new, Parallel(SAME, order[SAME]))
    said = torch.randint(32, (7, 4), generator=torch.Generator().manual_seed(3))
    before, after = (
        one.prefix([1, 3, 4, 2], level, prompt=prompt)
        for one, prompt in ((old, said[:3]), (new, order[said[:3]]))
    )
    if level == 0:
        one, other = old.ar_logits(before, said)[:, :-1], new.ar_logits(after, order[said])
    else:
        one, other = (
            old.nar_logits(before, said, level),
            new.nar_logits(after, order[said], level),
        )
    torch.testing.assert_close(one, other[:, order])
