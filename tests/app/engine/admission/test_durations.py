"""How long the pauses of a speech are."""

from app.engine.admission.durations import pauses_s
from models.text import Utterance


def test_pauses_are_those_of_the_text_and_pause_s_between_the_others() -> None:
    own, usual = Utterance("One.", "w", 0.5), Utterance("Two.", "t")
    assert pauses_s([usual, own, usual], 0.25, more=False) == 0.25 + 0.5
    assert pauses_s([usual, own, usual], 0.25, more=True) == 0.25 + 0.5 + 0.25
    assert pauses_s([usual, own], 0.25, more=False) == 0.25 + 0.5
    assert pauses_s([], 0.25, more=False) == 0.0
