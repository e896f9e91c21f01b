"""Utterances whose frames come by and by, beside others, and what each is alone."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor

from app.engine.core import AudioChunk
from app.engine.memory import make_pool
from app.engine.nar.graph_runner import ChunkSizes, NarGraphRunner
from app.engine.nar.stage import NarStage
from app.engine.nar.utterance_decoder import UtteranceDecoder
from app.engine.results import Samples
from app.engine.utterance import UtteranceSpec
from gpu.graphs import Replay
from models.checkpoints.sources import SpeechModel
from models.codecs.vocos import Vocos
from models.config import VocosConfig
from models.prefix_cache import VoiceKey
from models.stack.paged_cache import OutOfPages, PagePool
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


def samples_in(decoded: Sequence[AudioChunk]) -> Samples:
    return np.concatenate([np.zeros(0, np.float32), *(one.samples for one in decoded)])


def codes_in(decoded: Sequence[AudioChunk]) -> Tensor:
    return torch.cat([
        torch.from_numpy(one.decoded).long() for one in decoded if one.decoded is not None
    ])


def decoded_at_once(stream: UtteranceDecoder, ar_codes: Tensor) -> list[AudioChunk]:
    """Feed all frames of an utterance; return what they become."""
    stream.feed(ar_codes, True)
    return list(stream)


SIZES = ChunkSizes(rows=(5,), columns=256, streams=9)


def decoder_of(speech: SpeechModel, capture: Callable[..., Replay]) -> NarStage:
    def captured(speech: SpeechModel, pool: PagePool) -> NarGraphRunner:
        return NarGraphRunner(speech, pool, capture, SIZES)

    return NarStage(speech, lambda: make_pool(speech.model, 4 << 20), captured)


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


@dataclass(eq=False)
class Decoding:
    """An utterance that is decoded: its frames that have not come yet, and what it has become."""

    stream: UtteranceDecoder | None  # None at the end: it holds pages
    ar_codes: Tensor
    decoded: list[AudioChunk] = field(default_factory=list)
    error: Exception | None = None


@dataclass
class Decoded:
    """Utterances by their numbers, decoded to sound; a stage of `tests.alone_among`.

    Args:
        single: What an utterance is decoded by where it is alone: operator by operator.
        close: How near samples are, beside the loudest.
        most: So many are decoded at once.
        made: How many chunks were made together, each time.
    """

    decoder: NarStage
    single: NarStage
    close: float = CLOSE
    most: int = 8
    running: int = 0
    made: list[int] = field(default_factory=list)
    chance: random.Random = field(default_factory=lambda: random.Random(1))

    def has_room(self, request: int) -> bool:
        return self.running < self.most

    def begin(self, request: int) -> Decoding:
        self.running += 1
        ar_codes = codes_of(request, length_of(request))
        return Decoding(self.decoder.begin(utterance(request)), ar_codes)

    def step(self, running: Sequence[Decoding]) -> None:
        """Feed some frames to some; make a chunk of some by themselves, of others together."""
        streams = {one: one.stream for one in running if one.stream is not None}
        for one, stream in streams.items():
            if self.chance.random() < 0.7:  # frames come while chunks wait
                count = self.chance.randint(1, 20)
                frames, one.ar_codes = one.ar_codes[:count], one.ar_codes[count:]
                stream.feed(frames, not len(one.ar_codes))
        ended = [one for one in streams if not len(one.ar_codes)]
        waiting = [one for one in streams if one not in ended and streams[one].chunk is not None]
        self.chance.shuffle(waiting)
        if ended or (waiting and self.chance.random() < 0.25):
            made = self.decoder.make_together([streams[one] for one in (*ended, *waiting)])
            self.made.append(len(made))
        for one, stream in streams.items():
            if one in ended or self.chance.random() < 0.1:
                try:
                    one.decoded += stream if one in ended else islice(stream, 1)
                except OutOfPages as error:
                    one.error = error
            if one in ended or one.error:
                self.leave(one)

    def is_over(self, running: Decoding) -> bool:
        return running.stream is None

    def leave(self, running: Decoding) -> None:
        if running.stream is not None:
            self.running -= 1
            running.stream.close()
            running.stream = None

    def outcome(self, running: Decoding) -> tuple[Tensor, Samples]:
        return codes_in(running.decoded), samples_in(running.decoded)

    def error(self, running: Decoding) -> Exception | None:
        return running.error

    def alone(self, request: int) -> tuple[Tensor, Samples]:
        stream = self.single.begin(utterance(request))
        decoded = decoded_at_once(stream, codes_of(request, length_of(request)))
        return codes_in(decoded), samples_in(decoded)

    def assert_same(self, found: tuple[Tensor, Samples], expected: tuple[Tensor, Samples]) -> None:
        assert torch.equal(found[0], expected[0])
        assert_close(found[1], expected[1], self.close)


def assert_close(samples: Samples, expected: Samples, close: float = CLOSE) -> None:
    assert samples.shape == expected.shape
    assert np.abs(samples - expected).max(initial=0) <= close * np.abs(expected).max(initial=1)
