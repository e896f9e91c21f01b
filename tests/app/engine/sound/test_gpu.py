"""On a GPU: chunks made together are those that a CPU makes. Skipped where there is none."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from app.engine.memory import make_pool
from app.engine.sound.decoder import SoundDecoder
from app.engine.sound.recording import RecordedChunks
from app.engine.utterance import UtteranceInput
from models.checkpoints import load_speech_model
from models.codecs.vocos import Vocos
from models.cuda.graphs import Recorder
from models.cuda.library import set_up
from samplers.knobs.params import SamplingParams
from tests.app.engine.sound.sessions import codes_in, decoded_at_once, heard
from tests.toy.make_toy import make

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU"),
]
GPU, CPU = torch.device("cuda"), torch.device("cpu")
KNOBS: list[dict[str, Any]] = [
    {}, {"nar_decision": "mean"}, {"nar_temperature": 1.0, "nar_top_k": 40},
    {"nar_cfg_strength": 2.0}, {"nar_levels": 3},
]  # fmt: skip


def inputs(number: int) -> UtteranceInput:
    prompt = torch.randint(512, (20, 8), generator=torch.Generator().manual_seed(number))
    params = SamplingParams.model_validate(KNOBS[number % len(KNOBS)])
    return UtteranceInput([1, 10, 20, 30, 2], params, number, 0, 130, prompt=prompt)


def level_0(number: int) -> Tensor:
    return torch.randint(512, (121,), generator=torch.Generator().manual_seed(-number))


@torch.inference_mode()
def test_codes_and_samples_in_float32_are_those_of_a_cpu(tmp_path: Path) -> None:
    set_up()
    toy = make(tmp_path)  # no fixture: the ticket runs this without the packages that those need
    plain, speech = load_speech_model(toy, CPU), load_speech_model(toy, GPU)
    assert not isinstance(speech.decoder, Vocos)
    decoder = SoundDecoder(
        speech,
        lambda: make_pool(speech.model, 64 << 20),
        lambda speech, pool: RecordedChunks(speech, pool, Recorder(GPU).record),
    )
    decoder.warm_up()
    streams = [decoder.begin(inputs(number)) for number in range(10)]
    assert all(stream.stream is not None for stream in streams)
    for number, one in enumerate(streams):
        one.feed(level_0(number), True)
    together: list[int] = []
    while waiting := [one for one in streams if one.chunk is not None]:
        together.append(len(decoder.make_together(waiting)))
    assert max(together) == 10
    for number, stream in enumerate(streams):
        own = decoded_at_once(SoundDecoder(plain).begin(inputs(number)), level_0(number))
        found, expected = list(stream), heard(own)
        assert torch.equal(codes_in(found).cpu(), codes_in(own))
        assert np.abs(heard(found) - expected).max() < 1e-3 * np.abs(expected).max()
