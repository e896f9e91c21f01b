"""A text read at once, where a test needs no pieces."""

from models.text import TextOptions, Utterance
from models.text.prepare import AS_BUILT_IN, prepared


def prepare(text: str, options: TextOptions = AS_BUILT_IN) -> list[Utterance]:
    """Return the utterances of a text."""
    *_, utterances = prepared(text, options)
    return utterances or []
