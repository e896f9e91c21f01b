"""Checks of the loaded model: reproducibility and number of streams."""

import os
from functools import cache
from typing import TYPE_CHECKING

from app.commands.errors import CheckWarning
from app.settings import Settings

if TYPE_CHECKING:
    from app.engine.backend.synthesizer import Synthesizer


@cache
def _loaded(settings: Settings) -> "Synthesizer":
    """Load the model once for all checks, without a sound process."""
    from app.main import load_synthesizer
    from app.storage.preset_files import read_presets

    return load_synthesizer(settings, read_presets(settings.presets or None))


def check_streams(settings: Settings) -> str:
    """Measure for about a second how many streams this machine sustains."""
    from app.engine.admission import Capacity

    model, capacity = _loaded(settings), Capacity()
    model.check_deterministic()  # includes what is slow only once
    model.measure(capacity, 1).close()
    if capacity.streams is None:
        raise CheckWarning("nothing could be measured: the model generated no audio")
    speed = f"{capacity.speed:.1f} s of audio per second"
    load = os.getloadavg()[0] - 1  # one is this check
    if load > 0.5 * (os.cpu_count() or 1):
        speed += f" while others compute here (load {load:.1f}); idle it may be more"
    if not capacity.streams:
        raise CheckWarning(f"{speed}: streams will have gaps")
    streams = "stream" if capacity.streams == 1 else "streams"
    return f"{speed}, enough for {capacity.streams} {streams} at once; further requests wait"


def check_golden(settings: Settings) -> str:
    """Speak the model's golden requests and compare their codes with the stored ones."""
    result = _loaded(settings).check_golden()
    if result is None:
        return "none are stored for this model and these weights"
    if result.different:
        raise CheckWarning(
            f"{result.different} of {result.spoken} golden requests have other codes than those"
            " stored: the same seed gives different speech on this machine than elsewhere;"
            " please report this with the line `device` above and the processor's name"
        )
    return f"{result.spoken} of {result.spoken} requests have the stored codes"
