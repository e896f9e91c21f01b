"""The kernels put together as the service records them draw what torch's operators draw."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("triton")

from app.engine.level_0.runner import ArRunner
from app.engine.utterance import UtteranceInput
from models.checkpoints import load_speech_model
from models.cuda.graphs import as_it_is
from models.cuda.kernels import operators
from models.prefix_cache import PrefixCache
from models.stack.paged_cache import PagePool
from samplers.knobs.params import SamplingParams
from tests.models.cuda.kernels.cases import module_of
from tests.toy.make_toy import make

CPU = torch.device("cpu")
KNOBS: list[dict[str, Any]] = [
    {},
    {"temperature": 0.7, "top_k": 5, "top_p": 0.9, "min_p": 0.02},
    {"temperature": 0.5, "cfg_strength": 1.5, "cfg_rescale": 0.3},
    {"temperature": 0.0},
]


@contextmanager
def kernels_alone() -> Iterator[None]:
    """Run Triton's kernels on the CPU, in its interpreter, in place of the operators."""
    with pytest.MonkeyPatch.context() as patch:
        for name in operators.MODULES:
            patch.setattr(operators, name, getattr(module_of(name), name))
        yield


@pytest.mark.slow
@pytest.mark.usefixtures("without_gradients")
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's, of NaN and wrapping
@pytest.mark.skipif(torch.cuda.is_available(), reason="the interpreter is for a CPU")
def test_a_recorded_step_draws_what_the_loop_does(tmp_path: Path) -> None:
    model = load_speech_model(make(tmp_path / "toy"), CPU).model
    inputs = [
        UtteranceInput([1, 11, 12, 13, 2], SamplingParams(**knobs, seed=seed), seed, 0, 2)
        for seed, knobs in enumerate(KNOBS)
    ]
    drawn = []
    pool = PagePool(model.config, 16, dtype=torch.float32, device=CPU)
    prefixes = PrefixCache(model, new_cache=pool.new_cache)
    # Without warm-ups, of which each takes the interpreter ten seconds.
    recorded = ArRunner(model, prefixes, slots=5, max_length=96, pool=pool, record=as_it_is)
    own = ArRunner(model, PrefixCache(model), slots=5, max_length=96)
    for runner, kernels in ((recorded, kernels_alone), (own, nullcontext)):
        with kernels():
            groups = [runner.admit(inputs[0])]
        groups += [runner.admit(one) for one in inputs[1:]]  # a prefix takes seconds
        with kernels():
            while any(group.finish_reason is None for group in groups):
                runner.step()
        drawn.append([(group.level_0().tolist(), group.finish_reason) for group in groups])
    assert drawn[0] == drawn[1]
    assert sum(len(codes) for codes, _ in drawn[0]) > 6
