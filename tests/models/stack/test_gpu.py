"""On a GPU: what is played from graphs is what a CPU computes. Skipped where there is none."""

import pytest
import torch
from torch import Tensor

from benchmarks.card.decoder import HostCopy
from models.cuda.graphs import Recorder
from models.cuda.transfers import upload
from models.placement import prepare_for
from models.stack.cache import KVCache
from tests.models.stack.stacks import CONFIG, make_stack, vectors
from tests.models.test_valle import IDS, random_model, some_codes

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU"),
]
GPU, CPU = torch.device("cuda"), torch.device("cpu")
FRAMES = 200


@torch.inference_mode()
def test_steps_played_from_graphs_are_those_of_a_cpu() -> None:
    stack, cpu = make_stack().to(GPU), make_stack()
    cache, other = KVCache(CONFIG, 3, 600, device=GPU), KVCache(CONFIG, 3, 600)
    stack.record(cache)
    for slot, length in ((0, 5), (2, 250)):
        at = torch.arange(length)
        stack.extend(vectors(length).to(GPU), at.to(GPU), cache, slot, at.to(GPU))
        cpu.extend(vectors(length), at, other, slot, at)
    for seed, slots in enumerate([[0], [2, 0], [2], [0, 2]] * 5):
        x, at = vectors(len(slots), seed), torch.tensor([other.lengths[slot] for slot in slots])
        found = stack.step(x.to(GPU), at.to(GPU), cache, slots)
        assert (found.cpu() - cpu.step(x, at, other, slots)).abs().max() < 1e-4


@torch.inference_mode()
def greedy(device: torch.device, dtype: torch.dtype) -> Tensor:
    """Return the ``[FRAMES]`` likeliest codes, each fed back, of steps played from a graph."""
    model = prepare_for(device, random_model(), dtype)
    prefix = model.prefix(IDS, 0, prompt=some_codes(9).to(device))
    cache = KVCache(model.config, 1, len(prefix) + FRAMES, dtype=dtype, device=device)
    model.transformer.record(cache)
    ranks = model.ranks(0, prefix.blocks)
    hidden = model.transformer.extend(prefix.embeddings, prefix.positions, cache, 0, ranks)[-1:]
    codes = []
    for frame in range(FRAMES):
        codes.append(model.logits(hidden, 0)[:, :-1].argmax(-1))
        x = model.embed_response(codes[-1][:, None], 0)
        hidden = model.transformer.step(x, torch.tensor([frame], device=device), cache, [0])
    return torch.cat(codes).cpu()


def test_greedy_codes_in_float32_are_those_of_a_cpu() -> None:
    assert torch.equal(greedy(GPU, torch.float32), greedy(CPU, torch.float32))


def test_bfloat16_draws_codes() -> None:
    assert greedy(GPU, torch.bfloat16).shape == (FRAMES,)


def test_recording_runs_nothing_and_playing_runs_it_once() -> None:
    total = torch.zeros((), device=GPU)

    def add() -> None:
        total.add_(1)

    play = Recorder(GPU).record(add, warm_ups=1)
    assert total.item() == 1
    play()
    assert total.item() == 2


def test_uploads_and_copies_to_the_host_keep_their_order() -> None:
    numbers = torch.zeros(1, 3, dtype=torch.int64, device=GPU)
    copies = []
    for start in range(50):
        upload([[start, start + 1, start + 2]], numbers)
        copies.append(HostCopy(numbers))
    assert [copy.wait().tolist() for copy in copies] == [[[n, n + 1, n + 2]] for n in range(50)]
