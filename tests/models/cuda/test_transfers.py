"""What is sent and fetched is what there was when it was queued."""

import numpy as np
import torch

from models.cuda.transfers import Download, Upload


def test_an_upload_fills_the_tensor_where_it_is() -> None:
    numbers = torch.zeros(2, 3, dtype=torch.int64)
    place, host = numbers.data_ptr(), np.array([[1, 2, 3], [4, 5, 6]])
    Upload(numbers).send(host)
    host[:] = 0
    assert numbers.tolist() == [[1, 2, 3], [4, 5, 6]]
    assert numbers.data_ptr() == place


def test_a_download_has_the_values_of_the_moment_it_was_queued() -> None:
    codes = torch.arange(6, dtype=torch.float64).view(2, 3)
    download = Download(codes)
    first = download.fetch()
    codes.add_(10)
    second = download.fetch()
    codes.zero_()
    found = download.wait(first)
    assert found.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert download.wait(second).tolist() == [[10, 11, 12], [13, 14, 15]]
    assert found.tolist() == [[0, 1, 2], [3, 4, 5]]
