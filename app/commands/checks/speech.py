"""Whether the loaded model speaks here as it does elsewhere, and for how many listeners at once."""

from functools import cache
from typing import TYPE_CHECKING

from app.commands.errors import Doubt
from app.settings import Settings

if TYPE_CHECKING:
    from app.engine.backend.synthesizer import Synthesizer


@cache
def _loaded(settings: Settings) -> "Synthesizer":
    """Load the model once for all checks, its sound made in this process."""
    from app.main import load_synthesizer
    from app.preset_files import read_presets

    here = settings.model_copy(update={"voice_process": False})
    return load_synthesizer(here, read_presets(settings.presets or None))


def check_streams(settings: Settings) -> str:
    """Speak for about a second and tell how many listeners this machine serves at once.

    Raises:
        Doubt: Not even one.
    """
    from app.engine.serving.capacity import Capacity

    model, capacity = _loaded(settings), Capacity()
    model.check_deterministic()  # what is slow once only is done here
    model.measure(capacity)
    if capacity.streams is None:
        raise Doubt("nothing could be measured: the model gave no sound")
    told = f"{capacity.speed:.1f} s of sound a second"
    if not capacity.streams:
        raise Doubt(f"{told}: a stream that is heard while it is made will have gaps")
    listeners = "listener" if capacity.streams == 1 else "listeners"
    return f"{told}, so {capacity.streams} {listeners} at once without a gap; more wait"


def check_golden(settings: Settings) -> str:
    """Speak the model's golden requests and compare their codes with those stored with it.

    Raises:
        Doubt: Some are different: a seed gives other speech here than on other machines.
    """
    result = _loaded(settings).check_golden()
    if result is None:
        return "none are stored for this model and these weights"
    if result.different:
        raise Doubt(
            f"{result.different} of {result.spoken} golden requests have other codes here than"
            " those stored: the same seed gives other speech on this machine than elsewhere;"
            " please report it with the line `device` above and the processor's name"
        )
    return f"{result.spoken} of {result.spoken} requests have the codes that are stored"
