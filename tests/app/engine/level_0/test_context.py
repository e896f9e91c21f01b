"""Speech with context utterances equals the uncached model over context and speech."""

import pytest
import torch
from torch import Tensor

from app.engine.utterance import ContextUtterance, UtteranceInput
from models.config import BOS_ID, EOS_ID, ModelConfig
from models.valle import Valle
from samplers.knobs.params import SamplingParams
from samplers.knobs.resolve import resolve
from tests.app.engine.decoding import decode_utterance

CONFIG = ModelConfig(
    width=32, layers=2, heads=4, kv_heads=2, ffn=48, codes=64, levels=2, phonemes=tuple("abcdef"),
    segments=("phn", "lang", "level", "prom", "resp"),
    nar_mask="full",
    has_null_condition=True,
)  # fmt: skip
OWN, BEFORE = [BOS_ID, 3, 5, 4, EOS_ID], [BOS_ID, 8, 7, EOS_ID]


@pytest.fixture(params=[False, True], ids=["restarting", "counting through"])
def model(request: pytest.FixtureRequest) -> Valle:
    torch.manual_seed(0)
    model = Valle(CONFIG.model_copy(update={"unified_positions": request.param}))
    for parameter in model.parameters():
        if parameter.ndim == 2 or parameter.shape == (CONFIG.width,):
            torch.nn.init.normal_(parameter, std=0.3)
    return model.eval().requires_grad_(False)


def some(frames: int, seed: int) -> Tensor:
    return torch.randint(64, (frames, 2), generator=torch.Generator().manual_seed(seed))


SAID, PROMPT = some(9, 1)[:, 0], some(7, 2)


def speak(model: Valle, said: Tensor | None, **knobs: object) -> Tensor:
    bans = {"temperature": 0.0, "ban_tokens": [64], "seed": 0}
    params = resolve(SamplingParams.model_validate(bans | knobs))
    before = () if said is None else (ContextUtterance(BEFORE, said),)
    inputs = UtteranceInput(OWN, params, 0, 0, max_frames=30, prompt=PROMPT, context=before)
    return decode_utterance(model, torch.zeros(2, 64, 4), inputs).codes


def expected(
    model: Valle, ids: list[int], begun: Tensor, drawn: Tensor, *, prompt: Tensor | None = None
) -> Tensor:
    whole = torch.cat([begun, drawn])[:, None]
    logits = model.ar_logits(model.prefix(ids, 0, prompt=prompt), whole)
    return logits[len(begun) : -1, :-1].argmax(-1)


def test_the_ar_continues_the_context(model: Valle) -> None:
    codes = speak(model, SAID)
    joined = [BOS_ID, 8, 7, 3, 5, 4, EOS_ID]
    assert torch.equal(codes[:, 0], expected(model, joined, SAID, codes[:, 0], prompt=PROMPT))
    assert codes.shape == (30, 2)
    assert not torch.equal(codes, speak(model, None))


def test_a_prompt_can_begin_the_speech_instead_of_being_a_segment(model: Valle) -> None:
    codes = speak(model, None, prompt_as_prefix=True)
    assert torch.equal(codes[:, 0], expected(model, OWN, PROMPT[:, 0], codes[:, 0]))
    both = speak(model, SAID, prompt_as_prefix=True)
    begun = torch.cat([PROMPT[:, 0], SAID])
    joined = [BOS_ID, 8, 7, 3, 5, 4, EOS_ID]
    assert torch.equal(both[:, 0], expected(model, joined, begun, both[:, 0]))


def test_the_finer_levels_hear_the_utterance_alone(model: Valle) -> None:
    codes = speak(model, SAID, prompt_as_prefix=True)
    logits = model.nar_logits(model.prefix(OWN, 1, prompt=PROMPT), codes, 1)
    assert torch.equal(codes[:, 1], logits.argmax(-1))


def test_a_guided_row_begins_in_both_conditions(model: Valle) -> None:
    codes = speak(model, SAID, cfg_strength=2.0, cfg_rescale=0.0)[:, 0]
    whole = torch.cat([SAID, codes])[:, None]
    joined = [BOS_ID, 8, 7, 3, 5, 4, EOS_ID]
    own = model.ar_logits(model.prefix(joined, 0, prompt=PROMPT), whole)
    null = model.ar_logits(model.null_prefix(0), whole)
    guided = null + 2 * (own - null)
    assert torch.equal(codes, guided[len(SAID) : -1, :-1].argmax(-1))
