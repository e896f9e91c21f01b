"""Times of characters, as ElevenLabs' shapes tell them."""

from app.compat.timed_words import timed_characters
from app.engine.results import WordTimes

WORDS = [
    WordTimes(0, 0, "$3", "three dollars", 0.0, 1.2, missing=False, phonemes=None),
    WordTimes(0, 1, "lost", "lost", 1.2, 1.3, missing=True, phonemes=None),
    WordTimes(0, 2, "now.", "", 1.3, 1.7, missing=False, phonemes=None),
]


def test_written_and_spoken_characters_share_the_times_of_their_words() -> None:
    for normalised, text in ((False, "$3 now. "), (True, "three dollars now. ")):
        told = timed_characters(WORDS, 2.0, normalised=normalised)
        assert "".join(one.character for one in told) == text
        spaces = [one.start_s for one in told if one.character == " "]
        assert (spaces[0 if not normalised else 1], spaces[-1]) == (0.6, 0.85)
        assert all(one.start_s <= one.end_s for one in told)
