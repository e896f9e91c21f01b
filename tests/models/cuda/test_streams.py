"""Queues of a device; on a CPU there are none, and what uses them works all the same."""

import torch

from models.cuda.streams import SideStream


def test_without_a_gpu_a_worker_computes_as_ever() -> None:
    with SideStream(torch.device("cpu")).entered():
        assert (torch.arange(3) + 1).tolist() == [1, 2, 3]
