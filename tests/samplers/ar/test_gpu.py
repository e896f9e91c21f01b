"""On a GPU: what is played from a graph is what the chain draws. Skipped where there is none.

The graph is recorded here as `models.cuda.graphs` does it, which samplers know nothing of.
"""

import pytest
import torch

from models.cuda.graphs import Recorder
from samplers.ar.graphs import SETTLED, GraphSampler
from samplers.ar.sampler import ArSampler
from tests.samplers.ar.test_graphs import PROMPT, STAYS
from tests.samplers.ar.test_sampler import STOP, VOCAB

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU"),
]


@pytest.mark.parametrize("numbers", [range(len(STAYS)), *([n] for n in range(len(STAYS)))])
def test_a_graph_draws_what_the_chain_draws(numbers) -> None:
    device = torch.device("cuda")
    plain = ArSampler(stop_token=STOP, vocab_size=VOCAB, device=device)
    replayed = GraphSampler(
        Recorder(device).record, stop_token=STOP, vocab_size=VOCAB, device=device
    )
    for sampler in (plain, replayed):
        for number in numbers:
            sampler.join(STAYS[number], number, max_frames=100, prompt=PROMPT)
    for step in range(SETTLED + 40):
        logits = torch.randn(len(plain), VOCAB, generator=torch.Generator().manual_seed(step)).to(
            device
        )
        assert torch.equal(plain.step(logits), replayed.step(logits))
        if step % 20 == 19:
            for sampler in (plain, replayed):
                sampler.rewind(0, int(sampler.lengths[0]) // 2)
    assert torch.equal(plain.codes, replayed.codes)
    assert torch.equal(plain.lengths, replayed.lengths)
