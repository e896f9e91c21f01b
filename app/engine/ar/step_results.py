"""What a step over pages leaves on the device, and its way to the host in one download."""

from collections.abc import Sequence
from typing import Final

import numpy as np
import torch

from app.engine.ar.model_runner import Fetch, SampledTokens
from gpu.transfers import Download
from samplers.plain import RESULTS

_ON_THEIR_WAY: Final = 4  # results: of the burst that was queued last, and of that before


class StepResults:
    """Results of up to so many frames of S rows, in one piece of memory.

    Attributes:
        codes: ``[frames, S, RESULTS]`` float64.
        text: ``[S, frames, W]`` float32, as `SampledTokens.text`.
    """

    def __init__(self, slots: int, frames: int, text_width: int, device: torch.device) -> None:
        self._least = frames * slots * RESULTS
        self._each = frames * text_width // 2  # of a row's text, in numbers of 8 bytes
        memory = torch.zeros(self._least + slots * self._each, dtype=torch.float64, device=device)
        self.codes = memory[: self._least].view(frames, slots, RESULTS)
        self.text = memory[self._least :].view(torch.float32).view(slots, frames, text_width)
        self._download = Download(memory, _ON_THEIR_WAY)

    def fetch(
        self, rows: Sequence[int], places: Sequence[int], frames: int, *, follows: bool
    ) -> Fetch:
        """Queue the download of some rows' frames; return what gives them once they arrived.

        ``places`` are those that may be invalid; with ``follows`` the text comes along.
        """
        highest = 1 + max(rows) if follows else 0
        ticket = self._download.fetch(self._least + highest * self._each)

        def arrived() -> list[SampledTokens]:
            memory = self._download.wait(ticket)
            results = memory[: self._least].reshape(self.codes.shape)[:frames, list(rows)]
            text = None
            if follows:
                numbers = memory[self._least :].view(np.float32)
                text = numbers.reshape(highest, *self.text.shape[1:])[list(rows)]
            return [
                SampledTokens(
                    [int(code) for code in codes],
                    logprobs,
                    frozenset(place for place in places if invalid[place]),
                    None if text is None else text[:, frame],
                )
                for frame, (codes, logprobs, invalid) in enumerate(
                    results.transpose(0, 2, 1).tolist()
                )
            ]

        return arrived
