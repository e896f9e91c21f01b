"""On a GPU: what is replayed from graphs is what a CPU computes. Skipped where there is none."""

import numpy as np
import pytest
import torch

from gpu.graphs import GraphCapturer
from gpu.transfers import Download, Upload, to_device
from lab.benchmarks.card.ar import PREFIX, TINY, float_model, random_prefixes
from lab.benchmarks.card.decoder import decoder
from models.placement import prepare_for

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU"),
]
GPU, CPU = torch.device("cuda"), torch.device("cpu")
FRAMES = 200


@torch.inference_mode()
@pytest.mark.parametrize("greedy", [True, False])
def test_codes_of_the_recorded_step_in_float32_are_those_of_a_cpu(greedy: bool) -> None:
    prefixes, found = random_prefixes(TINY, 3), []
    for place, graphs in ((CPU, False), (GPU, True)):
        model = prepare_for(place, float_model(TINY), torch.float32)
        own = decoder(model, 3, PREFIX + FRAMES, graphs=graphs)
        found.append(own.run(prefixes.to(place), FRAMES, greedy=greedy))
    assert torch.equal(*found)


def test_bfloat16_draws_codes() -> None:
    model = prepare_for(GPU, float_model(TINY))
    own = decoder(model, 2, PREFIX + FRAMES, graphs=True)
    prefixes = random_prefixes(TINY, 2).to(GPU, torch.bfloat16)
    assert own.run(prefixes, FRAMES, greedy=False).shape == (2, FRAMES)


def test_recording_runs_nothing_and_playing_runs_it_once() -> None:
    total = torch.zeros((), device=GPU)

    def add() -> None:
        total.add_(1)

    replay = GraphCapturer(GPU, warm_ups=1).capture(add)
    assert total.item() == 2  # called, and replayed
    replay()
    assert total.item() == 3


def test_uploads_and_copies_to_the_host_keep_their_order() -> None:
    numbers = torch.zeros(1, 3, dtype=torch.int64, device=GPU)
    upload, download = Upload(numbers), Download(numbers)
    tickets = []
    for start in range(50):
        upload.send(np.array([[start, start + 1, start + 2]]))
        tickets.append(download.fetch())
    found = [download.wait(ticket).tolist() for ticket in tickets]
    assert found == [[[n, n + 1, n + 2]] for n in range(50)]


@pytest.mark.parametrize("numbers", [[[1, 2]], np.array([[1, 2]]), np.array([[True, False]])])
def test_numbers_of_the_host_arrive_on_the_device(numbers: object) -> None:
    assert torch.equal(to_device(numbers, GPU).cpu(), torch.tensor(numbers))
