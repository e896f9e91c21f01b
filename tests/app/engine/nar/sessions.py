"""Utterances whose frames come by and by, beside others, and what each is alone."""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor

from app.engine.core import AudioChunk
from app.engine.nar.stage import NarStage
from app.engine.nar.utterance_decoder import UtteranceDecoder
from app.engine.results import Samples
from app.engine.utterance import UtteranceSpec
from gpu.graphs import Replay
from models.checkpoints.sources import SpeechModel
from models.codecs.vocos import Vocos
from models.config import VocosConfig
from models.prefix_cache import VoiceKey
from models.valle import Valle
from samplers.knobs.params import SamplingParams
from tests.app.engine.decoding import spoken
from tests.capture.tape import Tape
from tests.toy.make_toy import MODEL

CLOSE = 1e-5
"""Of samples, beside the loudest; the two differ in the order of their float32 sums."""

KNOBS: list[dict[str, Any]] = [
    {},
    {"nar_decision": "mean"},
    {"nar_temperature": 1.0},
    {"nar_temperature": 0.7, "nar_top_k": 40, "nar_top_p": 0.9, "nar_min_p": 0.01},
    {"nar_cfg_strength": 2.0},
    {"nar_cfg_strength": 1.5, "nar_cfg_rescale": 0.2, "nar_temperature": 1.2},
    {"nar_decision": "mean", "nar_top_k": 20, "nar_cfg_strength": 2.5, "nar_cfg_rescale": 0.5},
    {"nar_levels": 3},
    {"nar_level_temperatures": (0.0, 0.5, 1.5), "nar_levels": 5},
    {"nar_levels": 0},
]  # fmt: skip


def captured_when_replayed(function: Callable[[], object], **_: Any) -> Replay:
    """Record a function on a tape when it is replayed first: tests of faults play few of them."""
    replays: list[Replay] = []

    def replay() -> None:
        if not replays:
            replays.append(Tape().capture(function))
        replays[0]()

    return replay


def codes_of(number: int, frames: int, levels: int | None = None) -> Tensor:
    shape = (frames,) if levels is None else (frames, levels)
    return torch.randint(512, shape, generator=torch.Generator().manual_seed(number))


def utterance(number: int, knobs: dict[str, Any] | None = None) -> UtteranceSpec:
    sample = random.Random(number)
    own = KNOBS[number % len(KNOBS)] if knobs is None else knobs
    kept = spoken(codes_of(number + 1, sample.randint(1, 40), 8)) if number % 4 == 3 else None
    return UtteranceSpec(
        [1, *(sample.randint(10, 20) for _ in range(sample.randint(1, 12))), 2],
        SamplingParams.model_validate(own), number, number % 3, 130,
        prompt=codes_of(number % 2, 20 + 7 * (number % 2), 8) if number % 5 else None,
        voice=VoiceKey(None, f"voice {number % 2}", 0) if number % 5 else None, kept=kept,
    )  # fmt: skip


def length_of(number: int) -> int:
    return random.Random(-number).choice([3, 15, 16, 44, 60, 75, 121])


def heard(decoded: Sequence[AudioChunk]) -> Samples:
    return np.concatenate([np.zeros(0, np.float32), *(one.samples for one in decoded)])


def codes_in(decoded: Sequence[AudioChunk]) -> Tensor:
    return torch.cat([
        torch.from_numpy(one.decoded).long() for one in decoded if one.decoded is not None
    ])


def decoded_at_once(stream: UtteranceDecoder, ar_codes: Tensor) -> list[AudioChunk]:
    """Feed all frames of an utterance; return what they become."""
    stream.feed(ar_codes, True)
    return list(stream)


def alone(
    speech: SpeechModel, number: int, knobs: dict[str, Any] | None = None
) -> tuple[Tensor, Samples]:
    """Return codes and samples of an utterance that is decoded operator by operator."""
    own = NarStage(speech).begin(utterance(number, knobs))
    decoded = decoded_at_once(own, codes_of(number, length_of(number)))
    return codes_in(decoded), heard(decoded)


def masked(speech: SpeechModel, mask: str, **changes: Any) -> SpeechModel:
    """The same weights under another mask."""
    model = Valle(MODEL.model_copy(update={"nar_mask": mask} | changes))
    model.load_state_dict(speech.model.state_dict())
    return replace(speech, model=model.eval().requires_grad_(False))


def with_vocos(speech: SpeechModel) -> SpeechModel:
    """The same weights with a small Vocos, which decodes in place of the codec."""
    torch.manual_seed(0)
    vocos = Vocos(VocosConfig(dimension=4, width=8, ffn=12, layers=1, codes=512)).eval()
    vocos.codebooks.normal_()
    return replace(speech, vocos=vocos.requires_grad_(False).to(speech.model.separator.device))


def together(
    decoder: NarStage, numbers: Sequence[int], seed: int
) -> tuple[dict[int, tuple[Tensor, Samples]], list[int]]:
    """Decode utterances, at most eight at once; now and then one more begins and leaves.

    Returns what each became, and how many chunks were made at once.
    """
    waiting, chance, made = list(numbers), random.Random(seed), list[int]()
    running: dict[int, tuple[UtteranceDecoder, Tensor, list[AudioChunk]]] = {}
    sounds: dict[int, tuple[Tensor, Samples]] = {}
    while waiting or running:
        while waiting and len(running) < 8 and chance.random() < 0.7:
            number = waiting.pop(0)
            stream = decoder.begin(utterance(number))
            running[number] = stream, codes_of(number, length_of(number)), []
            if chance.random() < 0.2:
                left = decoder.begin(utterance(chance.choice(numbers)))
                left.feed(codes_of(99, 20), False)
                list(left)
                left.close()
        for number, (stream, ar_codes, decoded) in [*running.items()]:
            if chance.random() < 0.7:  # frames come while chunks wait
                count = chance.randint(1, 20)
                stream.feed(ar_codes[:count], len(ar_codes) <= count)
                running[number] = stream, ar_codes[count:], decoded
                if len(ar_codes) <= count:
                    others = [other for other, *_ in running.values() if other is not stream]
                    made.append(len(decoder.make_together([stream, *others])))
                    decoded += stream
                    sounds[number] = codes_in(decoded), heard(decoded)
                    del running[number]
        streams = [stream for stream, *_ in running.values() if stream.chunk is not None]
        chance.shuffle(streams)
        if streams and chance.random() < 0.25:
            made.append(len(decoder.make_together(streams)))
        for stream, _, decoded in running.values():
            if chance.random() < 0.1:
                decoded += islice(stream, 1)
    return sounds, made


def assert_as_alone(
    speech: SpeechModel, sounds: dict[int, tuple[Tensor, Samples]], close: float = CLOSE
) -> None:
    for number, (codes, samples) in sounds.items():
        expected, sound = alone(speech, number)
        assert torch.equal(codes, expected), (number, utterance(number).params)
        assert samples.shape == sound.shape
        assert np.abs(samples - sound).max(initial=0) <= close * np.abs(sound).max(initial=1)
