"""The kernels put together as the service records them draw what torch's operators draw."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from app.engine.level_0.recorded.runner import RecordedRunner
from app.engine.level_0.runner import ArRunner
from app.engine.utterance import UtteranceInput
from models.checkpoints import load_speech_model
from models.cuda.graphs import Recorder
from models.cuda.kernels import attention, gated, norm, operators, plain, rotation
from models.cuda.kernels.choice import NAMES
from models.prefix_cache import PrefixCache
from models.stack.cache import KVCache
from models.stack.paged_cache import PAGE, PagePool
from samplers.knobs.params import SamplingParams
from tests.models.stack.stacks import CONFIG, make_stack, vectors
from tests.toy.make_toy import make

CPU = torch.device("cpu")
KNOBS: list[dict[str, Any]] = [
    {},
    {"temperature": 0.7, "top_k": 5, "top_p": 0.9, "min_p": 0.02},
    {"temperature": 0.5, "cfg_strength": 1.5, "cfg_rescale": 0.3},
    {"temperature": 0.0},
]
pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's, of NaN and wrapping


@pytest.fixture(autouse=True)
def kernels_alone(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run Triton's kernels on the CPU, in its interpreter, in place of the operators."""
    modules = (norm, gated, rotation, attention, plain)
    for name in NAMES:
        (own,) = [module for module in modules if name in vars(module)]
        monkeypatch.setattr(operators, name, getattr(own, name))
    with torch.inference_mode():
        yield


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="the interpreter is for a CPU")
def test_a_recorded_step_draws_what_the_loop_does(tmp_path: Path) -> None:
    model = load_speech_model(make(tmp_path / "toy"), CPU).model
    inputs = [
        UtteranceInput([1, 11, 12, 13, 2], SamplingParams(**knobs, seed=seed), seed, 0, 7)
        for seed, knobs in enumerate(KNOBS)
    ]
    drawn = []
    pool = PagePool(model.config, 16, dtype=torch.float32, device=CPU)
    prefixes = PrefixCache(model, new_cache=pool.new_cache)
    recorded = RecordedRunner(
        model, prefixes, pool, slots=8, max_length=96, record=Recorder(CPU).record
    )
    for runner in (recorded, ArRunner(model, PrefixCache(model), slots=8, max_length=96)):
        groups = [runner.admit(one) for one in inputs]
        while any(group.finish_reason is None for group in groups):
            runner.step()
        drawn.append([(group.codes().tolist(), group.finish_reason) for group in groups])
    assert drawn[0] == drawn[1]
    assert sum(len(codes) for codes, _ in drawn[0]) > 15


@pytest.mark.skipif(torch.cuda.is_available(), reason="the interpreter is for a CPU")
def test_sequences_in_pages_are_extended_as_each_by_itself() -> None:
    stack, frames, lengths = make_stack(), 6, (70, 3)
    pool = PagePool(CONFIG, 9, dtype=torch.float32, device=CPU)
    fixed = stack.fixed_extend(pool)
    caches = [pool.new_cache(1, 2 * PAGE) for _ in lengths]
    own = [KVCache(CONFIG, 1, 2 * PAGE) for _ in lengths]
    table = torch.full((2, 2), pool.padding)
    for row, length in enumerate(lengths):
        at = torch.arange(length)
        for cache in (caches[row], own[row]):
            stack.extend(vectors(length, row), at, cache, 0, at)
        caches[row].reserve(0, length + frames)
        pages = caches[row].pages(0)
        table[row, : len(pages)] = torch.tensor(pages)
    at, counts = torch.tensor(lengths), torch.tensor([6, 4])
    reach = torch.tensor([3, 3, 3, 6, 6, 6])
    layout = fixed.layout(at, at, counts, reach, 2 * PAGE)
    x = torch.stack([vectors(frames, 7), vectors(frames, 8)])
    found = fixed.run(x.flatten(0, 1), table, layout).unflatten(0, (2, -1))
    for row, count in enumerate(counts.tolist()):
        new = torch.arange(count)
        expected = stack.extend(x[row, :count], lengths[row] + new, own[row], 0, new // 3)
        assert (found[row, :count] - expected).abs().max() < 1e-5
