import torch
from torch import nn

from app.engine.backend.residence import Residence

HOME, AWAY = torch.device("cpu"), torch.device("meta")


def test_weights_leave_only_where_nobody_needs_them():
    module = nn.Linear(2, 2)
    residence = Residence([module], HOME, AWAY)
    residence.send_away(lambda: False)
    assert residence.at_home
    assert module.weight.device == HOME
    residence.send_away(lambda: True)
    assert not residence.at_home
    assert module.weight.device == AWAY


def test_weights_that_are_brought_back_are_what_they_were():
    module = nn.Linear(2, 2)
    before = module.weight.clone()
    residence = Residence([module], HOME, HOME)
    residence.bring()
    residence.send_away(lambda: True)
    residence.bring()
    assert residence.at_home
    assert torch.equal(module.weight, before)
