"""Uploads fill the tensor that they are given."""

import torch

from models.cuda.transfers import upload


def test_an_upload_fills_the_tensor_where_it_is() -> None:
    numbers = torch.zeros(2, 3, dtype=torch.int64)
    place, first = numbers.data_ptr(), numbers[0]
    upload([[1, 2, 3], [4, 5, 6]], numbers)
    assert numbers.tolist() == [[1, 2, 3], [4, 5, 6]]
    assert first.tolist() == [1, 2, 3]
    assert numbers.data_ptr() == place
