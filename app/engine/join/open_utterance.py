"""The utterance of a job whose sound is being made: from its first message to its last."""

from collections.abc import Sequence

import numpy as np

from app.engine.child_process import RemoteIterator
from app.engine.join.word_clock import WordClock
from app.engine.messages import FramesReady, UtteranceDone
from app.engine.nar.utterance_decoder import UtteranceDecoder
from app.engine.results import Alignment, Codes
from app.engine.utterance import TextPlaces
from models.text import Utterance


class OpenUtterance:
    """An utterance that has begun and not ended.

    Attributes:
        decoder: Makes its sound.
        clock: Tells when its words are heard; None if nobody asks.
        codes: ``[n, K]`` of each piece that was decoded.
    """

    def __init__(
        self,
        decoder: UtteranceDecoder | RemoteIterator,
        places: TextPlaces,
        clock: WordClock | None,
    ) -> None:
        self.decoder = decoder
        self.clock = clock
        self.codes: list[Codes] = []
        self._texts = [places]  # what was known of its text, by growths
        self._aligned: list[Alignment] = []  # each to what was known when its frames were drawn

    def feed(self, message: FramesReady | UtteranceDone) -> None:
        """Hand its next frames to the decoder, and note what more of its text is known."""
        self.decoder.feed(message.codes, message.kind == "done", message.grown)
        for growth in message.grown:
            self._texts.append(TextPlaces(len(growth.phoneme_ids), growth.begins))

    def align(self, alignment: Alignment, utterance: Utterance, lengths: Sequence[int]) -> None:
        """Tell the clock of the next frames.

        ``lengths`` says how many symbols each phoneme id of all the text so far stands for.
        """
        self._aligned.append(alignment)
        if self.clock is not None:
            self.clock.push(self._in_whole_text(alignment, utterance, lengths))

    def restart(self, clock: WordClock, utterance: Utterance, lengths: Sequence[int]) -> None:
        """Tell a clock that knows more of the text of all frames so far."""
        self.clock = clock
        for alignment in self._aligned:
            clock.push(self._in_whole_text(alignment, utterance, lengths))

    def _in_whole_text(
        self, alignment: Alignment, utterance: Utterance, lengths: Sequence[int]
    ) -> Alignment:
        """Return an alignment to what was known of a growing text as one to all that is."""
        if not utterance.versions:
            return alignment
        whole = TextPlaces.of(utterance.versions[-1].begins, lengths)
        path = alignment.path.copy()
        for growth in np.unique(alignment.growths):
            frames = alignment.growths == growth
            path[frames] = self._texts[growth].indices_in(whole)[path[frames]]
        return alignment._replace(path=path)
