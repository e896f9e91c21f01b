"""Makes the batches in which level 0 is sampled: on a GPU their steps are captured."""

from collections.abc import Callable
from functools import partial

import torch

from app.engine.ar.job import ArJob
from app.engine.ar.stage import ArStage
from app.engine.backend.capturers import Capturers
from app.engine.memory import Memory
from gpu.graphs import Capture, device_lock, eager
from models.checkpoints.sources import SpeechModel
from models.placement import WeightOffloader
from models.prefix_cache import PrefixCache
from models.text import FrontEnd


class BatchFactory:
    """Makes batches for one model; an `app.engine.model.ArPart`.

    ``before_capture`` is called when a batch is to be captured, while nobody else uses the device.

    Attributes:
        silent: The codes of level 0 that the codec encodes silence as.
        newest: The captured batch that was made last; None before the first.
    """

    def __init__(
        self,
        speech: SpeechModel,
        front_end: FrontEnd,
        silent: tuple[int, ...],
        prefixes: PrefixCache,
        memory: Memory | None,
        offloader: WeightOffloader,
    ) -> None:
        self._speech = speech
        self._make_job = partial(ArJob, speech, front_end, silent)
        self._prefixes = prefixes
        self._memory = memory
        self._offloader = offloader
        self._capturers: Capturers | None = None
        self._before_capture: Callable[[], None] = lambda: None
        self.silent = silent
        self.newest: ArStage | None = None

    def capture_with(self, capturers: Capturers, before_capture: Callable[[], None]) -> None:
        """Have the steps of batches captured from now on."""
        self._capturers = capturers
        self._before_capture = before_capture

    def batch(self, slots: int) -> ArStage:
        """Return a batch without jobs; see `app.engine.model.ArPart`.

        The weights are brought back first: a captured step reads them where they lie now.
        """
        self._offloader.load()
        if self._capturers is None:
            batch = self.called_batch(slots)
        else:
            device: torch.device = self._speech.model.separator.device
            with device_lock(device):
                self._before_capture()
                batch = self.called_batch(slots, self._capturers.renew("level 0"))
            self._capturers.check()
        self.newest = batch
        return batch

    def called_batch(self, slots: int, capture: Capture = eager) -> ArStage:
        """Return a batch without jobs; if nothing else is asked for, nothing is captured for it."""
        return ArStage(
            self._speech,
            self._make_job,
            self._prefixes,
            slots=slots,
            capture=capture,
            pool=self._memory.pool() if self._memory else None,
        )
