"""The model: segments, positions and masks of a sequence; blocks equal the whole pass."""

import pytest
import torch
from torch import Tensor

from models.config import BOS_ID, EOS_ID, ModelConfig
from models.stack.cache import KVCache
from models.valle import Valle

CONFIG = ModelConfig(
    width=32, layers=2, heads=4, kv_heads=2, ffn=48, codes=64, phonemes=tuple("abcdef")
)
IDS = [BOS_ID, 3, 5, 4, 8, EOS_ID]


def random_model(config: ModelConfig = CONFIG, std: float = 0.3) -> Valle:
    torch.manual_seed(0)
    model = Valle(config)
    for parameter in model.parameters():
        if parameter.ndim == 2 or parameter.shape == (config.width,):
            torch.nn.init.normal_(parameter, std=std)
    return model.eval().requires_grad_(False)


@pytest.fixture(scope="module")
def model() -> Valle:
    return random_model()


def some_codes(frames: int, seed: int = 0) -> Tensor:
    return torch.randint(64, (frames, 8), generator=torch.Generator().manual_seed(seed))


def test_each_segment_counts_from_zero_and_includes_its_separator(model: Valle) -> None:
    prefix = model.prefix(IDS, 3, prompt=some_codes(9))
    counts = [2, 2, 10, 7]  # lang, level, prompt, phonemes, each with a separator
    assert prefix.positions.tolist() == [i for count in counts for i in range(count)]
    assert prefix.blocks.tolist() == [0] * 14 + [1] * 7
    separators = [1, 3, 13, 20]
    assert all(torch.equal(prefix.embeddings[i], model.separator) for i in separators)


def test_no_prompt_drops_the_segment_and_its_separator(model: Valle) -> None:
    assert len(model.prefix(IDS, 0)) == len(model.prefix(IDS, 0, prompt=some_codes(9))) - 10


def test_the_null_condition_has_no_words_and_no_prompt(model: Valle) -> None:
    null = model.null_prefix(0)
    assert torch.equal(null.embeddings, model.prefix([BOS_ID, EOS_ID], 0).embeddings)
    assert len(null) == 2 + 2 + 3


def test_segments_come_in_the_order_of_the_config() -> None:
    config = CONFIG.model_copy(update={"segments": ("phn", "lang", "level", "prom", "resp")})
    prefix = random_model(config).prefix(IDS, 0)
    assert prefix.positions.tolist() == [*range(7), 0, 1, 0, 1]
    assert prefix.blocks.tolist() == [1] * 7 + [0] * 4


def test_a_level_hears_the_levels_below_it_in_prompt_and_response(model: Valle) -> None:
    codes = some_codes(5)
    for level in range(1, 8):
        summed = sum(model.response[k + 1](codes[:, k]) for k in range(level))
        assert isinstance(summed, Tensor)
        assert torch.allclose(model.embed_response(codes, level), summed, atol=1e-6)
    assert torch.equal(model.embed_response(codes, 0), model.response[0](codes[:, 0]))


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("level", [0, 1, 3])
def test_a_level_may_hear_the_other_levels_of_the_prompt_too(level: int, shared: bool) -> None:
    config = CONFIG.model_copy(update={"prompt_all_levels": True, "shared_tables": shared})
    model, codes = random_model(config), some_codes(9)
    heard = model.embed_prompt(codes, level)
    last = config.levels - shared  # with shared tables the last level has none
    for k in range(config.levels):
        changed = codes.clone()
        changed[:, k] = (codes[:, k] + 1) % 64
        assert torch.equal(model.embed_prompt(changed, level), heard) == (k >= last)
    model.prompt_rest.weight.zero_()
    plain = config.model_copy(update={"prompt_all_levels": False})
    other = Valle(plain)
    other.load_state_dict(model.state_dict(), strict=False)
    assert torch.equal(model.embed_prompt(codes, level), other.embed_prompt(codes, level))


def test_a_model_without_prompts_refuses_one() -> None:
    model = random_model(CONFIG.model_copy(update={"max_prompt_frames": 0}))
    with pytest.raises(ValueError, match="no voice prompt"):
        model.prefix(IDS, 0, prompt=some_codes(3))


def test_response_blocks_follow_the_frame_index_alone(model: Valle) -> None:
    whole = model.response_blocks(0, 40)
    assert whole.tolist() == [2] * 15 + [3] * 15 + [4] * 10
    assert torch.equal(model.response_blocks(17, 10), whole[17:27])


@pytest.mark.parametrize("level", [1, 4, 7])
def test_nar_blocks_equal_the_whole_pass(model: Valle, level: int) -> None:
    codes, prefix = some_codes(40), model.prefix(IDS, level, prompt=some_codes(20, seed=5))
    whole = model.nar_logits(prefix, codes, level)
    cache = KVCache(CONFIG, slots=1, max_length=len(prefix) + 40)
    model.read(prefix, cache, 0)
    for start in range(0, 40, 15):
        piece = codes[start : start + 15]
        frames = torch.arange(start, start + len(piece))
        hidden = model.transformer.extend(model.embed_response(piece, level), frames, cache, 0)[0]
        assert (model.logits(hidden, level) - whole[frames]).abs().max() < 1e-4


@pytest.mark.parametrize(
    ("mask", "level", "expected"),
    [
        ("block_causal", 1, [0, 0, 1, 1, 2]),
        ("full", 1, [0, 0, 0, 0, 0]),
        ("causal", 1, [0, 1, 2, 3, 4]),
        ("full", 0, [0, 1, 2, 3, 4]),
    ],
)
def test_the_mask_is_the_configs_but_for_the_ar(mask: str, level: int, expected: list[int]) -> None:
    model = random_model(CONFIG.model_copy(update={"nar_mask": mask}))
    assert model.ranks(level, torch.tensor([0, 0, 1, 1, 2])).tolist() == expected


def test_heads_have_the_codes_and_only_the_ars_has_the_stop(model: Valle) -> None:
    widths = [model.logits(torch.zeros(1, 32), level).shape[-1] for level in range(8)]
    assert widths == [65] + [64] * 7
    assert CONFIG.stop_token == 64
