"""On a GPU: chunks made together are those that a CPU makes. Skipped where there is none."""

from pathlib import Path

import pytest
import torch

from app.engine.memory import make_pool
from app.engine.nar.graph_runner import NarGraphRunner
from app.engine.nar.stage import NarStage
from gpu.graphs import GraphCapturer
from gpu.library import set_up
from models.checkpoints.sources import open_speech_model
from tests.alone_among.harness import Schedule, alone_equals_among
from tests.app.engine.nar.sessions import Decoded, with_vocos
from tests.toy.make_toy import make

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU"),
]
GPU, CPU = torch.device("cuda"), torch.device("cpu")


@torch.inference_mode()
@pytest.mark.parametrize("has_vocos", [False, True])
def test_codes_and_samples_in_float32_are_those_of_a_cpu(tmp_path: Path, has_vocos: bool) -> None:
    set_up()
    toy = make(tmp_path)  # no fixture: the ticket runs this without the packages that those need
    plain, speech = open_speech_model(toy, CPU), open_speech_model(toy, GPU)
    if has_vocos:
        plain, speech = with_vocos(plain), with_vocos(speech)
    decoder = NarStage(
        speech,
        lambda: make_pool(speech.model, 64 << 20),
        lambda speech, pool: NarGraphRunner(speech, pool, GraphCapturer(GPU).capture),
    )
    decoder.warm_up()
    stage = Decoded(decoder, NarStage(plain), close=1e-3)
    alone_equals_among(stage, range(20), Schedule(1, pauses=0.0))
    assert max(stage.made) >= 4
