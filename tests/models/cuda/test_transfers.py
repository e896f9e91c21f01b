"""Numbers that travel are those of the moment they left."""

import torch

from models.cuda.transfers import Readback, upload


def test_an_upload_fills_the_tensor_where_it_is() -> None:
    numbers = torch.zeros(2, 3, dtype=torch.int64)
    place, first = numbers.data_ptr(), numbers[0]
    upload([[1, 2, 3], [4, 5, 6]], numbers)
    assert numbers.tolist() == [[1, 2, 3], [4, 5, 6]]
    assert first.tolist() == [1, 2, 3]
    assert numbers.data_ptr() == place


def test_what_is_read_back_is_what_was_there_when_it_was_asked_for() -> None:
    codes = torch.arange(6).view(2, 3)
    first = Readback(codes)
    codes.add_(10)
    second = Readback(codes[:, 1:])
    codes.zero_()
    assert first.wait().tolist() == [[0, 1, 2], [3, 4, 5]]
    assert second.arrived
    assert second.wait().tolist() == [[11, 12], [14, 15]]
