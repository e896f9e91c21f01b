"""Level 0 on a device, tried on a CPU with a small model; its figures mean nothing there."""

import pytest
import torch

from benchmarks.card.level_0 import BASELINE, OURS, STATIC, TINY, measure_decoding, targets

CPU = torch.device("cpu")


@pytest.mark.slow
@pytest.mark.parametrize(("streams", "others"), [(1, (BASELINE, STATIC)), (2, ())])
def test_every_contestant_is_timed_ours_first_and_told_at_once(
    streams: int, others: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [
        row for first in (True, False) for row in measure_decoding(TINY, CPU, streams, first=first)
    ]

    assert [row["what"] for row in rows] == [f"{n}, batch {streams}" for n in (*OURS, *others)]
    assert capsys.readouterr().out.splitlines() == [str(row) for row in rows]
    assert all(row["least"] <= row["codes/s"] <= row["most"] for row in rows)


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
