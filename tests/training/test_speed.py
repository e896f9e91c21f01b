import pytest
import torch

from training import speed
from training.speed import fastest_type, products_per_second

CPU = torch.device("cpu")


def test_the_type_with_more_products_a_second_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    for best in speed.TYPES:
        monkeypatch.setattr(speed, "products_per_second", lambda dtype, _, best=best: dtype is best)
        assert fastest_type(CPU) is best


def test_products_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "MEASURED_S", 0.01)
    assert products_per_second(torch.float32, CPU) > 0
