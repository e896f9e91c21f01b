"""`valle_serve.hf`: our sampler in `generate` of `transformers`, on small models made here."""

import random
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor
from transformers.models.gemma3 import Gemma3ForCausalLM, Gemma3TextConfig
from transformers.models.gpt2 import GPT2Config, GPT2LMHeadModel
from transformers.models.llama import LlamaConfig, LlamaForCausalLM
from transformers.models.mistral import MistralConfig, MistralForCausalLM
from transformers.models.qwen2 import Qwen2Config, Qwen2ForCausalLM

from samplers.ops.sample import Stage, categorical, stream_key, uniform
from valle_serve import hf

VOCAB, STOP, PAD, NEW = 61, 2, 0, 24
READ_PADDING = {"guidance_scale", "no_repeat_ngram_size"}
"""Arguments by which `transformers` counts the padding of a prompt as text."""
if transformers.__version__ < "5":
    READ_PADDING |= {"repetition_penalty"}

LOOPS = {
    "logit_bias": {5: 6.0, 9: 6.0, 12: 6.0, STOP: -100.0},
    "backtrack": True,
    "backtrack_max_period": 8,
    "backtrack_min_repeats": 2,
    "backtrack_min_frames": 4,
    "backtrack_budget": 200,
}
"""What takes tokens of these models back often."""


def llama() -> Any:
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=VOCAB, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
            num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=256,
            initializer_range=0.3, bos_token_id=1, eos_token_id=STOP, pad_token_id=PAD,
        )
    )  # fmt: skip


def gpt2() -> Any:
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=VOCAB, n_embd=32, n_layer=2, n_head=4, n_positions=256,
            initializer_range=0.3, bos_token_id=1, eos_token_id=STOP, pad_token_id=PAD,
        )
    )  # fmt: skip


SIZES = {
    "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "initializer_range": 0.3, "sliding_window": 8,
    "vocab_size": VOCAB, "bos_token_id": 1, "eos_token_id": STOP, "pad_token_id": PAD,
}  # fmt: skip


def mistral() -> Any:
    return MistralForCausalLM(MistralConfig(**SIZES))


def gemma3() -> Any:
    kinds = ["sliding_attention", "full_attention"]
    return Gemma3ForCausalLM(Gemma3TextConfig(**SIZES, head_dim=8, layer_types=kinds))


def qwen2() -> Any:
    return Qwen2ForCausalLM(Qwen2Config(**SIZES, use_sliding_window=True, max_window_layers=1))


@pytest.fixture(scope="module", params=[llama, gpt2])
def model(request: pytest.FixtureRequest) -> Any:
    torch.manual_seed(0)
    return request.param().eval()


def prompts(rows: int, length: int, seed: int) -> Tensor:
    return torch.randint(3, VOCAB, (rows, length), generator=torch.Generator().manual_seed(seed))


def ours(model: Any, ids: Tensor, **arguments: Any) -> Any:
    return model.generate(
        ids, custom_generate=hf.FOLDER, trust_remote_code=True,
        **{"max_new_tokens": NEW} | arguments,
    )  # fmt: skip


def settings(chance: random.Random, ids: Tensor) -> dict[str, Any]:
    """Values of a random choice of the knobs that `transformers` has too."""
    token = lambda: chance.randrange(3, VOCAB)  # noqa: E731
    last = set(ids[:, -1].tolist())
    first = next(one for one in iter(token, None) if one not in last)
    every: Mapping[str, Any] = {
        "temperature": chance.uniform(0.3, 2),
        "top_k": chance.randint(1, VOCAB),
        "top_p": chance.uniform(0.1, 1),
        "min_p": chance.uniform(0, 0.3),
        "typical_p": chance.uniform(0.1, 1),
        "epsilon_cutoff": chance.uniform(0.001, 0.05),
        "eta_cutoff": chance.uniform(0.001, 0.05),
        "repetition_penalty": chance.uniform(0.8, 2),
        "no_repeat_ngram_size": chance.randint(1, 4),
        "min_new_tokens": chance.randint(1, NEW),
        "exponential_decay_length_penalty": (chance.randint(NEW // 2, NEW), 1.1),
        "bad_words_ids": [[token()], [first, token()]],
        "suppress_tokens": [token(), token()],
        "sequence_bias": {(token(),): chance.uniform(-5, 5)},
        "guidance_scale": chance.uniform(1.1, 3),
    }
    chosen = {name: value for name, value in every.items() if chance.random() < 0.35}
    if "min_new_tokens" in chosen:  # where the stop is forbidden its penalty is no number there
        chosen.pop("exponential_decay_length_penalty", None)
    return {"do_sample": chance.random() < 0.8} | chosen


def sample_as_we_do(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Have `generate` sample with our noise: what it samples from is its own."""
    step = 0

    def multinomial(probs: Tensor, num_samples: int) -> Tensor:
        nonlocal step
        keys = torch.tensor([[stream_key(seed, row, Stage.AR)] for row in range(len(probs))])
        sampled = categorical(probs.log(), uniform(keys, probs.shape[1], step=step))
        step += num_samples
        return sampled[:, None]

    monkeypatch.setattr(torch, "multinomial", multinomial)


def compare(model: Any, monkeypatch: pytest.MonkeyPatch, number: int) -> tuple[Tensor, Tensor]:
    """Return what `generate` gives and what we give, with settings of this number."""
    chance = random.Random(number)
    ids = prompts(chance.randint(1, 3), chance.randint(2, 9), number)
    asked = settings(chance, ids)
    mask = torch.ones_like(ids)
    if not READ_PADDING & asked.keys():
        mask[0, : chance.randint(0, 1)] = 0
    torch.manual_seed(number)
    got = ours(model, ids, attention_mask=mask, **asked)
    torch.manual_seed(number)
    with monkeypatch.context() as patched:
        sample_as_we_do(patched, int(torch.randint(2**32, ())))
        return model.generate(ids, attention_mask=mask, max_new_tokens=NEW, **asked), got


@pytest.mark.slow
@pytest.mark.parametrize("first", [0, 12, 24, 36])
def test_the_knobs_that_it_has_give_the_same_tokens_in_random_settings(
    model: Any, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(first, first + 12):
        theirs, got = compare(model, monkeypatch, number)
        assert torch.equal(theirs, got), number


@pytest.mark.parametrize("entropix", [False, True])
def test_what_was_taken_back_is_as_if_it_had_never_been_read(model: Any, entropix: bool) -> None:
    """Rows go back alone, so that some columns of the cache are hidden from one of them."""
    ids, mask = prompts(3, 6, 1), torch.ones(3, 6, dtype=torch.int64)
    mask[1, :3] = 0
    knobs = LOOPS | {"seed": 5, "entropix": entropix}
    found = ours(
        model, ids, attention_mask=mask, max_new_tokens=60, return_dict_in_generate=True,
        knobs=knobs,
    )  # fmt: skip
    assert min(found.backtracks) > 0
    model.set_attn_implementation("eager")
    for row, prompt in enumerate(ids):
        start = prompt[mask[row].bool()]
        count = len(found.trace[row])
        tokens = found.sequences[row, ids.shape[1] :][:count]
        read = model(torch.cat([start, tokens])[None], output_attentions=True)
        nats = read.logits[0, len(start) - 1 : -1].log_softmax(-1)
        again = nats.gather(1, tokens[:, None])[:, 0]
        torch.testing.assert_close(found.logprobs[row, :count], again, atol=1e-4, rtol=1e-4)
        if entropix:
            weights = read.attentions[-1][0, :, len(start) - 1 : -1]
            bits = -(weights * weights.clamp(min=1e-38).log2()).sum(-1).mean(0)
            told = torch.tensor([one["attention_entropy_bits"] for one in found.trace[row]])
            torch.testing.assert_close(told, bits, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("made", [mistral, gemma3, qwen2])
@pytest.mark.parametrize("rows", [1, 3])
def test_what_was_taken_back_is_forgotten_by_windows_too(made: Any, rows: int) -> None:
    torch.manual_seed(0)
    model = made().eval()
    ids, mask = prompts(rows, 6, 1), torch.ones(rows, 6, dtype=torch.int64)
    mask[-1, :3] = 0
    found = ours(
        model, ids, attention_mask=mask, max_new_tokens=40, return_dict_in_generate=True,
        knobs=LOOPS | {"seed": 5},
    )  # fmt: skip
    assert sum(found.backtracks) > 0
    for row, prompt in enumerate(ids):
        start, count = prompt[mask[row].bool()], len(found.trace[row])
        tokens = found.sequences[row, ids.shape[1] :][:count]
        nats = model(torch.cat([start, tokens])[None]).logits[0, len(start) - 1 : -1]
        again = nats.log_softmax(-1).gather(1, tokens[:, None])[:, 0]
        torch.testing.assert_close(found.logprobs[row, :count], again, atol=1e-4, rtol=1e-4)


def test_layers_that_cannot_go_back_are_refused_by_name_before_a_token() -> None:
    torch.manual_seed(0)
    model = llama().eval()
    model.config.layer_types = ["full_attention", "chunked_attention"]
    model.config.attention_chunk_size = 8
    with pytest.raises(ValueError, match="chunked_attention"):
        hf.generate(model, inputs=prompts(1, 4, 1), max_new_tokens=4, knobs=LOOPS | {"seed": 1})


def test_any_of_several_ends_of_text_ends_it_and_none_does_before_the_least() -> None:
    torch.manual_seed(0)
    model = llama().eval()
    ends, ids = [STOP, 9, 5], prompts(3, 4, 1)
    likely = {"logit_bias": {9: 5.0, 5: 5.0}, "seed": 3}
    found = ours(model, ids, knobs=likely, eos_token_id=ends, max_new_tokens=60)
    for row in found[:, ids.shape[1] :].tolist():
        (first,) = [place for place, token in enumerate(row) if token in ends][:1]
        assert {*row[first + 1 :]} <= {PAD}
    least = ours(model, ids, knobs=likely | {"min_frames": 6}, eos_token_id=ends)
    assert not {*least[:, ids.shape[1] :][:, :6].flatten().tolist()} & {*ends}


@pytest.mark.parametrize("do_sample", [False, True])
def test_several_ends_of_text_are_those_of_generate(
    model: Any, monkeypatch: pytest.MonkeyPatch, do_sample: bool
) -> None:
    asked = {"eos_token_id": [STOP, 9, 30], "min_new_tokens": 3, "do_sample": do_sample}
    ids = prompts(3, 5, 4)
    torch.manual_seed(7)
    got = ours(model, ids, **asked)
    torch.manual_seed(7)
    with monkeypatch.context() as patched:
        sample_as_we_do(patched, int(torch.randint(2**32, ())))
        assert torch.equal(model.generate(ids, max_new_tokens=NEW, **asked), got)


@pytest.mark.parametrize("knob", [{"length_penalty": 0.5}, {"exponential_decay_factor": 1.2}])
def test_a_knob_that_moves_one_end_is_refused_where_there_are_several(
    model: Any, knob: dict[str, float]
) -> None:
    with pytest.raises(ValueError, match=next(iter(knob))):
        ours(model, prompts(1, 4, 1), knobs=knob | {"seed": 1}, eos_token_id=[STOP, 9])


def test_embeddings_in_place_of_tokens_are_refused_by_name(model: Any) -> None:
    embeds = model.get_input_embeddings()(prompts(1, 4, 1))
    with pytest.raises(ValueError, match="inputs_embeds"):
        hf.generate(model, inputs_embeds=embeds, max_new_tokens=4, knobs={"seed": 1})


def test_the_rows_of_a_batch_are_as_alone(model: Any) -> None:
    ids, mask = prompts(3, 6, 2), torch.ones(3, 6, dtype=torch.int64)
    mask[2, :4] = 0
    together = ours(model, ids, attention_mask=mask, knobs=LOOPS | {"seed": 9})
    alone = ours(model, ids[:1], knobs=LOOPS | {"seed": 9})[0]
    assert torch.equal(together[0, : len(alone)], alone)
    assert not torch.equal(together[1], together[2])


def test_a_processor_draws_what_our_loop_draws(model: Any) -> None:
    knobs = {
        "seed": 3, "top_p": 0.9, "repetition_penalty": 1.2, "penalty_includes_prompt": True,
        "mirostat_mode": 2, "dry_multiplier": 0.5,
    }  # fmt: skip
    del knobs["top_p"]  # which mirostat takes no part in
    ids = prompts(2, 5, 3)
    processors = hf.logits_processors(knobs, stop_token=STOP, max_new_tokens=NEW)
    for do_sample in (False, True):
        theirs = model.generate(
            ids, logits_processor=processors, do_sample=do_sample, max_new_tokens=NEW
        )
        assert torch.equal(theirs, ours(model, ids, knobs=knobs))


def test_a_model_without_an_end_of_text_goes_on_to_the_limit(model: Any) -> None:
    found = ours(model, prompts(2, 4, 4), eos_token_id=None, knobs={"temperature": 5.0})
    assert found.shape == (2, 4 + NEW)


REFUSED: Sequence[tuple[Mapping[str, Any], str]] = (
    ({"num_beams": 2}, "num_beams"),
    ({"sequence_bias": {(3, 4): 1.0}}, "several tokens"),
    ({"knobs": {"best_of": 2}}, "best_of"),
    ({"knobs": {"beam_width": 2}}, "beam_width"),
    ({"knobs": {"entropix": True, "entropix_action": "branch"}}, "entropix_action"),
    ({"logits_processor": []}, "logits_processor"),
)


@pytest.mark.parametrize(("arguments", "words"), REFUSED)
def test_what_it_cannot_do_is_refused_by_name(arguments: Mapping[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        ours(llama(), prompts(1, 4, 5), **arguments)


@pytest.mark.parametrize("name", ["backtrack", "entropix"])
def test_a_processor_refuses_what_needs_the_loop(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        hf.logits_processors({name: True}, stop_token=STOP, max_new_tokens=NEW)
