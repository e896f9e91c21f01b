"""Copies to the host hold the values of the moment they were queued."""

import torch

from benchmarks.card.decoder import HostCopy


def test_a_copy_has_the_values_of_the_moment_it_was_queued() -> None:
    codes = torch.arange(6).view(2, 3)
    first = HostCopy(codes)
    codes.add_(10)
    second = HostCopy(codes[:, 1:])
    codes.zero_()
    assert first.wait().tolist() == [[0, 1, 2], [3, 4, 5]]
    assert second.wait().tolist() == [[11, 12], [14, 15]]
