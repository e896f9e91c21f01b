"""What the next chunk of a job tells beside its samples: words and codes, each once."""

from collections.abc import Sequence

from app.engine.core import AudioChunk
from app.engine.results import UtteranceCodes, WordTimes


class ChunkEvents:
    """Words and codes that are known and that no chunk has told yet."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], WordTimes] = {}  # by utterance and index
        self._words: list[WordTimes] = []
        self._codes: list[UtteranceCodes] = []

    def add_words(self, words: Sequence[WordTimes]) -> None:
        """Add what is known of words, as far as it is new."""
        for word in words:
            place = word.utterance, word.index
            if self._known.get(place) != word:
                self._known[place] = word
                self._words.append(word)

    def add_codes(self, codes: UtteranceCodes) -> None:
        """Add the codes of an utterance that were decoded."""
        self._codes.append(codes)

    def move_to(self, chunk: AudioChunk) -> None:
        """Have a chunk tell all of it."""
        chunk.words = tuple(self._words)
        chunk.codes = tuple(self._codes)
        self._words.clear()
        self._codes.clear()
