import pytest
import torch

from lab.training import speed
from lab.training.speed import fastest_type


def test_the_type_with_more_products_a_second_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    for best in speed.TYPES:
        monkeypatch.setattr(speed, "products_per_second", lambda dtype, _, best=best: dtype is best)
        assert fastest_type(torch.device("cpu")) is best
