"""Decoding an utterance: what the codes depend on, and what entropix sees.

How it ends is said by `level_0`, how many levels it has by `sound/test_utterance`.
"""

from typing import Any

import pytest
import torch
from torch import Tensor

from app.engine.results import TraceColumns
from app.engine.utterance import UtteranceSpec
from models.checkpoints.sources import SpeechModel
from models.stack.attention import attention_statistics
from models.stack.cache import KVCache
from models.stack.taps import Taps
from samplers.knobs.params import SamplingParams
from tests.app.engine.decoding import Decoded, decode_utterance

IDS = [1, 10, 20, 30, 2]
ENDLESS = {"ban_tokens": (512,)}  # the toy's stop


def decode(speech: SpeechModel, knobs: dict[str, Any], **rest: Any) -> Decoded:
    params = SamplingParams(**{"nar_temperature": 1.0} | knobs)
    inputs = UtteranceSpec(IDS, params, **{"seed": 1, "utterance": 0, "max_frames": 40} | rest)
    return decode_utterance(speech.model, speech.codec.quantizer.codebooks, inputs)


PROMPT = torch.randint(512, (20, 8), generator=torch.Generator().manual_seed(0))
GREEDY = {"temperature": 0.0, "nar_temperature": 0.0}
NAR_GUIDED = {"nar_cfg_strength": 2.5, "nar_cfg_rescale": 0.5}
NONE, NAR, ALL = range(0), range(1, 8), range(8)


@pytest.mark.parametrize(
    ("base", "knobs", "rest", "levels"),
    [
        ({}, {}, {}, NONE),
        ({}, {}, {"seed": 2}, ALL),
        ({}, {}, {"utterance": 1}, ALL),
        ({}, {}, {"prompt": PROMPT}, ALL),
        (GREEDY, {}, {"seed": 9}, NONE),
        (GREEDY, {"nar_decision": "mean"}, {}, NAR),
        ({}, {"cfg_strength": 1.0}, {}, NONE),
        ({}, {"cfg_strength": 2.0}, {}, ALL),
        (GREEDY, NAR_GUIDED, {}, NAR),
        (GREEDY, NAR_GUIDED | {"nar_cfg_strength": 1.0}, {}, NONE),
    ],
)
def test_the_levels_that_differ_are_those_that_depend_on_it(
    speech, base, knobs, rest, levels
) -> None:
    codes, others = decode(speech, ENDLESS | base), decode(speech, ENDLESS | base | knobs, **rest)
    differ = (codes.codes != others.codes).any(0).nonzero()[:, 0]
    assert differ.tolist() == [*levels]


UNSURE = ENDLESS | {
    "entropix": True, "entropix_helv_entropy": 0.0, "entropix_low_entropy": 0.0,
    "entropix_low_varentropy": 1000.0,
}  # fmt: skip


def entropix_trace(speech: SpeechModel, **knobs: Any) -> tuple[Tensor, TraceColumns]:
    decoded = decode(speech, ENDLESS | {"entropix": True, "nar_levels": 0} | knobs, trace=True)
    assert decoded.trace is not None
    return decoded.codes[:, :1], decoded.trace


REWOUND: dict[str, Any] = {
    "backtrack": True, "backtrack_min_repeats": 2, "backtrack_min_frames": 2,
    "temperature": 0.02, "entropix_adaptive_entropy": 0.0,
}  # fmt: skip


@pytest.mark.parametrize("knobs", [{}, {"cfg_strength": 2.0}, REWOUND])
def test_entropix_sees_the_attention_of_the_conditional_row_to_what_is_kept(speech, knobs) -> None:
    codes, trace = entropix_trace(speech, **knobs)
    # The last record of each frame is that of the code that stayed.
    last = {frame: row for row, frame in enumerate(trace["frame"].tolist())}
    assert (len(last) < len(trace["frame"])) == (knobs is REWOUND)
    model, prefix = speech.model, speech.model.prefix(IDS, 0)
    whole = torch.cat([prefix.embeddings, model.embed_response(codes, 0)])
    positions = torch.cat([prefix.positions, torch.arange(len(codes))])
    names = ("entropy_bits", "varentropy_bits2", "agreement", "strength")
    for frame in range(len(codes)):
        end = len(prefix) + frame
        cache = KVCache(model.config, slots=1, max_length=end)
        _, queries = model.transformer.extend(
            whole[:end], positions[:end], cache, 0, torch.arange(end), Taps([-1])
        )
        fresh = attention_statistics(
            queries[0, -1:], cache.keys_of(-1, 0)[None], torch.tensor([end])
        )
        found = [trace[f"attention_{name}"][last[frame]] for name in names]
        assert found == pytest.approx(fresh[:, 0].tolist(), abs=1e-4)


def test_entropix_moves_codes(speech) -> None:
    on, _ = entropix_trace(speech)
    assert not torch.equal(decode(speech, ENDLESS).codes[:, :1], on)


def test_a_pause_is_of_the_codecs_silence(speech) -> None:
    knobs = UNSURE | {"entropix_action": "pause", "entropix_pause_interval": 10}
    decoded = decode(speech, knobs, silent=(0, 1, 2), trace=True)
    assert decoded.trace is not None
    frames = decoded.trace["frame"][decoded.trace["paused"]].tolist()
    assert frames == [5, 15, 25]
    assert set(decoded.codes[frames, 0].tolist()) <= {0, 1, 2}
