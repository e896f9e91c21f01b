"""The messages to the text process."""

from typing import NamedTuple

from models.text import Utterance


class Read(NamedTuple):
    """Read the first piece of a text, under a key; for the fields see `FrontEnd.prepare`.

    The answer is None if more of the text is left, or else its utterances.
    """

    key: int
    text: str
    language: str
    max_chars: int


class Next(NamedTuple):
    """Read the next piece of a key; answered as `Read` is."""

    key: int


class Words(NamedTuple):
    """Answer with the words of an utterance; see `FrontEnd.words`."""

    utterance: Utterance
    language: str


class Cancel(NamedTuple):
    """Forget a key; has no answer."""

    key: int
