"""Decoding an utterance: how it ends, how many levels, and what the codes depend on."""

from typing import Any

import pytest
import torch

from app.engine.decode import Decoded, OnFrame, Piece, decode_utterance
from models.cache import KVCache
from models.checkpoints import SpeechModel, load_speech_model
from samplers.guidance import guide, guide_frames
from samplers.nar import sample_nar
from samplers.params import SamplingParams

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
    piece = Piece(IDS, params, **{"seed": 1, "utterance": 0, "max_frames": 40} | rest)
    return decode_utterance(speech.model, speech.codec.quantizer.codebooks, piece, on_frame)


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
    assert (silent.finish_reason, len(silent.codes)) == ("stop", 0)


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
            ranks = model.ranks(level, prefix.blocks)
            model.transformer.extend(prefix.embeddings, prefix.positions, cache, 0, ranks)
            caches.append(cache)
        for start in range(0, 40, model.config.block_frames):
            piece = streamed[start : start + model.config.block_frames]
            frames = torch.arange(start, start + len(piece))
            x = model.embed_response(piece, level)
            rows = [
                model.logits(model.transformer.extend(x, frames, cache, 0), level)
                for cache in caches
            ]
            guided = guide_frames(rows[0], rows[1], 2.5, 0.5)
            drawn.append(
                sample_nar(
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
