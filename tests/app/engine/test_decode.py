"""Decoding an utterance: how it ends, how many levels, and what the codes depend on."""

from typing import Any

import pytest
import torch
from torch import Tensor

from app.engine.job import TraceColumns
from app.engine.utterance import UtteranceInput
from models.checkpoints import SpeechModel, load_speech_model
from models.stack.attention import attention_statistics
from models.stack.cache import KVCache
from samplers.knobs.params import SamplingParams
from samplers.ops.guidance import guide
from tests.app.engine.decoding import Decoded, OnFrame, decode_utterance
from tests.samplers.frames import draw_frames, guide_frames

IDS = [1, 10, 20, 30, 2]
ENDLESS = {"ban_tokens": (512,)}  # the toy's stop


@pytest.fixture(scope="module")
def speech(toy) -> SpeechModel:
    return load_speech_model(toy, torch.device("cpu"))


def decode(
    speech: SpeechModel,
    knobs: dict[str, Any] | None = None,
    on_frame: OnFrame = lambda _: True,
    **rest: Any,
) -> Decoded:
    params = SamplingParams(**{"nar_temperature": 1.0} | (knobs or {}))
    inputs = UtteranceInput(IDS, params, **{"seed": 1, "utterance": 0, "max_frames": 40} | rest)
    return decode_utterance(speech.model, speech.codec.quantizer.codebooks, inputs, on_frame)


def test_it_gives_all_levels_within_the_codebooks(speech) -> None:
    decoded = decode(speech, ENDLESS)
    assert decoded.codes.shape == (40, 8)
    assert decoded.codes.dtype == torch.int64
    assert decoded.codes.min() >= 0
    assert decoded.codes.max() < 512


def test_it_ends_with_the_stop_or_with_the_longest_length(speech) -> None:
    assert decode(speech, ENDLESS).finish_reason == "length"
    stopping = decode(speech, {"logit_bias": {512: 100.0}, "min_frames": 7})
    assert (stopping.finish_reason, len(stopping.codes)) == ("stop", 7)


def test_an_utterance_may_stop_before_its_first_frame(speech) -> None:
    silent = decode(speech, {"logit_bias": {512: 100.0}})
    assert (silent.finish_reason, len(silent.codes)) == ("empty", 0)


def test_it_stops_when_it_is_told_to(speech) -> None:
    told: list[int] = []

    def on_frame(count: int) -> bool:
        told.append(count)
        return count < 5

    decoded = decode(speech, ENDLESS, on_frame)
    assert told == [1, 2, 3, 4, 5]
    assert (decoded.finish_reason, tuple(decoded.codes.shape)) == ("cancelled", (5, 1))


def test_the_same_seed_gives_the_same_codes_and_another_gives_others(speech) -> None:
    first = decode(speech, ENDLESS).codes
    assert torch.equal(first, decode(speech, ENDLESS).codes)
    assert not torch.equal(first, decode(speech, ENDLESS, seed=2).codes)
    assert not torch.equal(first, decode(speech, ENDLESS, utterance=1).codes)


def test_greedy_codes_do_not_depend_on_the_seed(speech) -> None:
    greedy = ENDLESS | {"temperature": 0.0, "nar_temperature": 0.0}
    assert torch.equal(decode(speech, greedy).codes, decode(speech, greedy, seed=9).codes)


def test_the_prompt_changes_what_is_said(speech) -> None:
    prompt = torch.randint(512, (20, 8), generator=torch.Generator().manual_seed(0))
    prompted = decode(speech, ENDLESS, prompt=prompt).codes
    assert not torch.equal(prompted, decode(speech, ENDLESS).codes)


@pytest.mark.parametrize(("levels", "columns"), [(0, 1), (3, 4), (7, 8), (31, 8)])
def test_fewer_finer_levels_leave_the_others_as_they_were(speech, levels, columns) -> None:
    whole = decode(speech, ENDLESS).codes
    assert torch.equal(decode(speech, ENDLESS | {"nar_levels": levels}).codes, whole[:, :columns])


def test_the_nar_may_decide_by_the_mean_of_the_codebook(speech) -> None:
    greedy = ENDLESS | {"nar_temperature": 0.0}
    by_mean = decode(speech, greedy | {"nar_decision": "mean"}).codes
    likeliest = decode(speech, greedy).codes
    assert torch.equal(by_mean[:, 0], likeliest[:, 0])
    assert not torch.equal(by_mean[:, 1:], likeliest[:, 1:])


def test_guidance_of_strength_one_is_none_and_stronger_changes_the_words(speech) -> None:
    plain = decode(speech, ENDLESS).codes
    assert torch.equal(plain, decode(speech, ENDLESS | {"cfg_strength": 1.0}).codes)
    assert not torch.equal(plain, decode(speech, ENDLESS | {"cfg_strength": 2.0}).codes)


def test_guided_logits_are_those_of_two_uncached_passes(speech) -> None:
    knobs = {"temperature": 0.0, "cfg_strength": 2.0, "cfg_rescale": 0.5}
    codes = decode(speech, ENDLESS | knobs).codes
    model, level_0 = speech.model, codes[:, :1]
    rows = []
    for prefix in (model.prefix(IDS, 0), model.null_prefix(0)):
        x = torch.cat([prefix.embeddings, model.embed_response(level_0, 0)])
        positions = torch.cat([prefix.positions, torch.arange(len(level_0))])
        hidden = model.transformer(x[None], positions[None])[0, len(prefix) - 1 : -1]
        rows.append(model.logits(hidden, 0)[:, None])
    many = torch.ones(len(codes))
    guided = guide(rows[0], rows[1], many * 2.0, many * 0.5)[:, 0, :-1]
    assert torch.equal(guided.argmax(-1), level_0[:, 0])


NAR_GUIDED = {"nar_cfg_strength": 2.5, "nar_cfg_rescale": 0.5, "nar_temperature": 0.0}


def test_guidance_of_the_finer_levels_leaves_level_0_alone(speech) -> None:
    plain = decode(speech, ENDLESS | {"nar_temperature": 0.0}).codes
    guided = decode(speech, ENDLESS | NAR_GUIDED).codes
    assert torch.equal(plain[:, 0], guided[:, 0])
    assert all(not torch.equal(plain[:, level], guided[:, level]) for level in range(1, 8))
    sharper = decode(speech, ENDLESS | NAR_GUIDED | {"nar_cfg_strength": 1.0}).codes
    assert torch.equal(sharper, plain)


@pytest.mark.parametrize("draw", [{}, {"nar_temperature": 1.0}], ids=["greedy", "drawn"])
def test_a_guided_stream_of_blocks_gives_the_finer_levels_of_the_whole(speech, draw) -> None:
    knobs, model = ENDLESS | NAR_GUIDED | draw, speech.model
    prompt = torch.randint(512, (20, 8), generator=torch.Generator().manual_seed(0))
    whole = decode(speech, knobs, prompt=prompt).codes
    streamed = whole[:, :1]
    for level in range(1, 8):
        caches, drawn = [], []
        for prefix in (model.prefix(IDS, level, prompt=prompt), model.null_prefix(level)):
            cache = KVCache(model.config, slots=1, max_length=len(prefix) + 40)
            model.read(prefix, cache, 0)
            caches.append(cache)
        for start in range(0, 40, model.config.block_frames):
            inputs = streamed[start : start + model.config.block_frames]
            frames = torch.arange(start, start + len(inputs))
            x = model.embed_response(inputs, level)
            rows = [
                model.logits(model.transformer.extend(x, frames, cache, 0), level)
                for cache in caches
            ]
            guided = guide_frames(rows[0], rows[1], 2.5, 0.5)
            drawn.append(
                draw_frames(
                    guided,
                    SamplingParams(**knobs),
                    seed=1,
                    utterance=0,
                    level=level,
                    position=start,
                )
            )
        streamed = torch.cat([streamed, torch.cat(drawn)[:, None]], 1)
    assert torch.equal(streamed, whole)


UNSURE = ENDLESS | {
    "entropix": True, "entropix_helv_entropy": 0.0, "entropix_low_entropy": 0.0,
    "entropix_low_varentropy": 1000.0,
}  # fmt: skip


def entropix_trace(speech: SpeechModel, **knobs: Any) -> tuple[Tensor, TraceColumns]:
    decoded = decode(speech, ENDLESS | {"entropix": True, "nar_levels": 0} | knobs, trace=True)
    assert decoded.trace is not None
    return decoded.codes[:, :1], decoded.trace


@pytest.mark.parametrize("guided", [{}, {"cfg_strength": 2.0}])
def test_entropix_sees_the_attention_of_the_conditional_row_at_every_token(speech, guided) -> None:
    codes, trace = entropix_trace(speech, **guided)
    model = speech.model
    prefix = model.prefix(IDS, 0)
    whole = torch.cat([prefix.embeddings, model.embed_response(codes, 0)])
    positions = torch.cat([prefix.positions, torch.arange(len(codes))])
    names = ("entropy_bits", "varentropy_bits2", "agreement", "strength")
    for frame in (0, 1, 7, len(codes) - 1):
        end = len(prefix) + frame
        cache = KVCache(model.config, slots=1, max_length=end)
        ranks = torch.arange(end)
        _, queries = model.transformer.extend_with_queries(
            whole[:end], positions[:end], cache, 0, ranks
        )
        fresh = attention_statistics([queries[-1]], [cache.keys_of(-1, 0)])
        found = [trace[f"attention_{name}"][frame] for name in names]
        assert found == pytest.approx(fresh[:, 0].tolist(), abs=1e-4)


def test_entropix_moves_codes_and_the_model_is_asked_only_where_it_is_on(
    speech, monkeypatch
) -> None:
    on, _ = entropix_trace(speech)
    for place in ("models.stack.transformer", "app.engine.level_0.feed"):
        monkeypatch.setattr(f"{place}.attention_statistics", None)
    assert not torch.equal(decode(speech, ENDLESS).codes[:, :1], on)


def test_a_pause_is_of_the_codecs_silence(speech) -> None:
    silent = torch.arange(512) < 3
    knobs = UNSURE | {"entropix_action": "pause", "entropix_pause_interval": 10}
    decoded = decode(speech, knobs, silent=silent, trace=True)
    assert decoded.trace is not None
    frames = decoded.trace["frame"][decoded.trace["paused"]].tolist()
    assert frames == [5, 15, 25]
    assert silent[decoded.codes[frames, 0]].all()


def test_after_a_rewind_entropix_sees_the_attention_of_what_was_kept(speech) -> None:
    eager = {"backtrack": True, "backtrack_min_repeats": 2, "backtrack_min_frames": 2}
    cold = {"temperature": 0.02, "entropix_adaptive_entropy": 0.0} | eager
    decoded = decode(speech, ENDLESS | {"entropix": True, "nar_levels": 0} | cold, trace=True)
    assert decoded.backtracks
    assert decoded.trace is not None
    # The last record of each frame is that of the code that stayed.
    last = {frame: row for row, frame in enumerate(decoded.trace["frame"].tolist())}
    codes = decoded.codes[:, :1]
    model, prefix = speech.model, speech.model.prefix(IDS, 0)
    whole = torch.cat([prefix.embeddings, model.embed_response(codes, 0)])
    positions = torch.cat([prefix.positions, torch.arange(len(codes))])
    for frame in range(len(codes)):
        end = len(prefix) + frame
        cache = KVCache(model.config, slots=1, max_length=end)
        _, queries = model.transformer.extend_with_queries(
            whole[:end], positions[:end], cache, 0, torch.arange(end)
        )
        fresh = attention_statistics([queries[-1]], [cache.keys_of(-1, 0)])
        found = decoded.trace["attention_entropy_bits"][last[frame]]
        assert found == pytest.approx(float(fresh[0]), abs=1e-4)
