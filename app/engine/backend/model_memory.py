"""What a loaded model takes of its device, and who finds room there."""

from collections.abc import Callable, Iterable, Mapping

from app.engine.backend.batch_factory import BatchFactory
from app.engine.core import Plan
from app.engine.memory import Memory, fits_in_memory
from app.engine.nar.process import AudioProcess
from app.engine.nar.stage import NarStage
from models.placement import WeightOffloader
from models.prefix_cache import PrefixCache


class ModelMemory:
    """Weights, keys and values of one model; an `app.engine.model.MemoryPart`."""

    def __init__(
        self,
        offloader: WeightOffloader,
        prefixes: PrefixCache,
        ar: BatchFactory,
        decoder: NarStage | AudioProcess,
        pool: Memory | None,
    ) -> None:
        self.offloader = offloader
        self.pool = pool
        """None on a CPU, where keys and values lie in no common pool."""
        self._prefixes = prefixes
        self._ar = ar
        self._decoder = decoder

    def fits(self, plan: Plan, running: Iterable[Plan]) -> bool:
        """Return whether memory holds a job beside others; see `app.engine.memory`."""
        return self.pool is None or fits_in_memory(plan, running, self.pool.pool())

    @property
    def cache_bytes(self) -> Mapping[str, int]:
        """The bytes of keys and values, by what they are of; see `tts_kv_bytes` in the docs."""
        batch = self._ar.newest
        sizes = {
            "level_0": 0 if batch is None else batch.cache_bytes,
            "prefixes": self._prefixes.bytes,
        }
        if self.pool is not None and (pool := self.pool.held) is not None:
            sizes["used"] = pool.used_bytes
            sizes["pool"] = pool.pages * pool.page_bytes
        return sizes

    def unload(self, is_idle: Callable[[], bool]) -> None:
        """Move the weights off a GPU; whoever needs them next moves them back."""
        self._prefixes.clear()
        self._decoder.clear_cache()
        if self.pool is not None:
            self.pool.forget()
        self.offloader.offload(is_idle)
