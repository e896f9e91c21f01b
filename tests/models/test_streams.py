"""Queues of a device; on a CPU there are none, and what uses them works all the same."""

import torch

from models.streams import Handover, SideStream


def test_without_a_gpu_a_worker_computes_and_hands_over_as_ever() -> None:
    aside = SideStream(torch.device("cpu"))
    with aside.entered():
        given = Handover(torch.arange(3) + 1)
    with aside.entered():
        assert given.take().tolist() == [1, 2, 3]
