"""On a GPU: chunks made together are those that a CPU makes. Skipped where there is none."""

from pathlib import Path

import numpy as np
import pytest
import torch

from app.engine.memory import make_pool
from app.engine.sound.decoder import SoundDecoder
from app.engine.sound.recording import RecordedChunks
from models.checkpoints import load_speech_model
from models.codecs.vocos import Vocos
from models.cuda.graphs import Recorder
from models.cuda.library import set_up
from tests.app.engine.sound.sessions import codes_in, codes_of, decoded_at_once, heard, utterance
from tests.toy.make_toy import make

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU"),
]
GPU, CPU = torch.device("cuda"), torch.device("cpu")


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
    streams = [decoder.begin(utterance(number)) for number in range(10)]
    assert all(stream.stream is not None for stream in streams)
    for number, one in enumerate(streams):
        one.feed(codes_of(number, 121), True)
    together: list[int] = []
    while waiting := [one for one in streams if one.chunk is not None]:
        together.append(len(decoder.make_together(waiting)))
    assert max(together) == 10
    for number, stream in enumerate(streams):
        own = decoded_at_once(SoundDecoder(plain).begin(utterance(number)), codes_of(number, 121))
        found, expected = list(stream), heard(own)
        assert torch.equal(codes_in(found).cpu(), codes_in(own))
        assert np.abs(heard(found) - expected).max() < 1e-3 * np.abs(expected).max()
