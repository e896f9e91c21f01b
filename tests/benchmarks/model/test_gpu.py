"""The GPU suite runs, tried on a CPU with a small model; its figures mean nothing there."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from benchmarks.model import gpu
from benchmarks.model.decoder import BatchDecoder
from benchmarks.model.gpu import BASELINE, OURS, TINY, Scale, main, measure_decoding, targets

CPU = torch.device("cpu")


def test_every_way_of_decoding_is_timed_at_every_batch() -> None:
    rows = [row for size in (1, 2) for row in measure_decoding(TINY, CPU, size)]
    names = [BASELINE, *OURS]
    assert [row["what"] for row in rows] == [f"{n}, batch {size}" for size in (1, 2) for n in names]
    assert all(row["least"] <= row["codes/s"] <= row["most"] for row in rows)


def test_greedy_codes_that_differ_are_counted_up_to_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert gpu.same_greedy_codes(TINY, CPU) == TINY.gate

    class Wrong(BatchDecoder):
        """Gives another code at frame 7 where steps are played from graphs."""

        def run(self, prefixes: torch.Tensor, frames: int, *, greedy: bool) -> torch.Tensor:
            codes = super().run(prefixes, frames, greedy=greedy)
            if self._model.transformer._graphs is not None:
                codes = codes.index_fill(1, torch.tensor([7]), -1)
            return codes

    monkeypatch.setattr(gpu, "BatchDecoder", Wrong)
    assert gpu.same_greedy_codes(TINY, CPU) == 7


def test_what_was_asked_of_a_gpu_is_judged_by_our_best_way() -> None:
    def row(what: str, speed: float, ratio: float) -> dict[str, object]:
        return {"what": what, "codes/s": speed, "times transformers": ratio}

    rows = [
        row(f"{BASELINE}, batch 1", 9e9, 1.0),
        row("ours, eager, batch 1", 500.0, 3.0),
        row("ours, graphs, batch 1", 2100.0, 11.0),
        row(f"{BASELINE}, batch 32", 9e9, 1.0),
        row("ours, graphs, batch 32", 30_000.0, 20.0),
    ]
    found = {
        gate.what: (gate.figure, gate.holds) for gate in targets(rows, [30.0, 20.0, 10.0], 200)
    }
    assert found == {
        "greedy codes as on a CPU": (200, True),
        "codes/s, batch 1": (2100.0, True),
        "times transformers, batch 1": (11.0, True),
        "codes/s, batch 32": (30_000.0, False),
        "ms to the first sound, median": (20.0, True),
    }


@pytest.mark.weights
def test_the_whole_suite_runs_on_a_cpu_and_writes_what_it_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu, "TINY", replace(TINY, batches=(1,), frames=9))
    assert main(["--device", "cpu", "--tiny", "--out", str(tmp_path / "gpu.json")]) == 0
    report = json.loads((tmp_path / "gpu.json").read_text())
    assert report["same_greedy_codes"] == TINY.gate
    assert len(report["rows"]) == 3
    assert len(report["first_ms"]) == TINY.requests
    assert report["bandwidth_gb_s"] > 0


def test_at_full_scale_it_has_the_published_size() -> None:
    assert (Scale.layers, Scale.width, Scale.batches, Scale.gate) == (12, 1024, (1, 32), 200)
