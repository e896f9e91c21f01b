"""Makes the batches in which level 0 is drawn: on a GPU their steps are recorded."""

from collections.abc import Callable
from functools import partial

import torch

from app.engine.backend.capturers import Capturers
from app.engine.level_0.job import Level0Job
from app.engine.level_0.runner import JobBatch
from app.engine.memory import Memory
from gpu.graphs import Record, alone, as_it_is
from models.checkpoints.sources import SpeechModel
from models.placement import Residence
from models.prefix_cache import PrefixCache
from models.text import FrontEnd


class BatchFactory:
    """Makes batches for one model; an `app.engine.model.ArPart`.

    ``before_capture`` is called when a batch is to be recorded, while nobody else uses the device.

    Attributes:
        silent: The codes of level 0 that the codec encodes silence as.
        newest: The recorded batch that was made last; None before the first.
    """

    def __init__(
        self,
        speech: SpeechModel,
        front_end: FrontEnd,
        silent: tuple[int, ...],
        prefixes: PrefixCache,
        memory: Memory | None,
        residence: Residence,
    ) -> None:
        self._speech = speech
        self._make_job = partial(Level0Job, speech, front_end, silent)
        self._prefixes = prefixes
        self._memory = memory
        self._residence = residence
        self._capturers: Capturers | None = None
        self._before_capture: Callable[[], None] = lambda: None
        self.silent = silent
        self.newest: JobBatch | None = None

    def capture_with(self, capturers: Capturers, before_capture: Callable[[], None]) -> None:
        """Have the steps of batches recorded from now on."""
        self._capturers = capturers
        self._before_capture = before_capture

    def batch(self, slots: int) -> JobBatch:
        """Return a batch without jobs; see `app.engine.model.ArPart`.

        The weights are brought back first: a recorded step reads them where they lie now.
        """
        self._residence.bring()
        if self._capturers is None:
            batch = self.called_batch(slots)
        else:
            device: torch.device = self._speech.model.separator.device
            with alone(device):
                self._before_capture()
                batch = self.called_batch(slots, self._capturers.renew("level 0"))
            self._capturers.check()
        self.newest = batch
        return batch

    def called_batch(self, slots: int, record: Record = as_it_is) -> JobBatch:
        """Return a batch without jobs; if nothing else is asked for, nothing is recorded for it."""
        return JobBatch(
            self._speech,
            self._make_job,
            self._prefixes,
            slots=slots,
            record=record,
            pool=self._memory.pool() if self._memory else None,
        )
