"""Level 0 on a device, tried on a CPU with a small model; its figures mean nothing there."""

from typing import Any

import pytest
import torch

from benchmarks.card import level_0
from benchmarks.card.decoder import RecordedDecoder
from benchmarks.card.level_0 import BASELINE, OURS, STATIC, TINY, Scale, measure_decoding, targets

CPU = torch.device("cpu")


@pytest.mark.parametrize(("streams", "others"), [(1, (BASELINE, STATIC)), (2, ())])
def test_every_contestant_is_timed_ours_first_and_told_at_once(
    streams: int, others: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    rows = measure_decoding(TINY, CPU, streams)

    assert [row["what"] for row in rows] == [f"{n}, batch {streams}" for n in (*OURS, *others)]
    assert capsys.readouterr().out.splitlines() == [str(row) for row in rows]
    assert all(row["least"] <= row["codes/s"] <= row["most"] for row in rows)


def test_greedy_codes_that_differ_are_counted_up_to_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert level_0.same_greedy_codes(TINY, CPU) == TINY.exact

    right = RecordedDecoder.run

    def wrong(decoder: RecordedDecoder, *args: Any, **kwargs: Any) -> torch.Tensor:
        return right(decoder, *args, **kwargs).index_fill(1, torch.tensor([7]), -1)

    monkeypatch.setattr(RecordedDecoder, "run", wrong)
    assert level_0.same_greedy_codes(TINY, CPU) == 7


def test_what_was_asked_of_a_card_is_judged_by_our_best_at_each_batch() -> None:
    rows = [
        {"what": f"{BASELINE}, batch 1", "codes/s": 9e9},
        {"what": "ours, eager, batch 1", "codes/s": 500.0},
        {"what": "ours, graphs, batch 1", "codes/s": 3100.0},
        {"what": f"{BASELINE}, batch 32", "codes/s": 9e9},
        {"what": "ours, graphs, batch 32", "codes/s": 30_000.0},
    ]

    found = {target.what: (target.figure, target.holds) for target in targets(rows)}

    assert found == {
        "codes/s, batch 1": (3100.0, True),
        "codes/s, batch 32": (30_000.0, False),
    }


def test_at_full_scale_it_has_the_published_size() -> None:
    assert (Scale.layers, Scale.width, Scale.exact) == (12, 1024, 200)
    assert Scale.batches == (1, 8, 32, 128)
