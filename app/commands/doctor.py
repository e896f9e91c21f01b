"""`valle-serve doctor`: check this machine, and say how to fix what fails.

Each check returns what it found, or raises with a fix.
"""

import os
import platform
import shutil
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final, get_args

from app.audio.formats import AudioFormat
from app.commands.checks import device, host
from app.commands.checks.host import check_port, writable
from app.commands.errors import CheckWarning, CommandError, CommandFailed
from app.settings import Settings
from app.storage.preset_files import read_presets

if TYPE_CHECKING:
    from app.engine.backend.synthesizer import Synthesizer

_ASK_S: Final = 5.0
_NEEDED_BYTES: Final = 2 * 1024**3  # twice a published model and its codec


def check_python(_: Settings) -> str:
    """Return the Python version."""
    return platform.python_version()


def check_espeak(_: Settings) -> str:
    """Phonemize a word with espeak-ng."""
    from models.text import phonemize

    try:
        sounds = phonemize("hello")
    except OSError as error:  # phonemizer loads a copy of the library from the temporary folder
        raise CommandError(
            f"{error}; {tempfile.gettempdir()} must allow programs: mount it without noexec, or set"
            " TMPDIR to another folder"
        ) from error
    if not sounds:
        raise CommandError("espeak-ng gives no phonemes; run scripts/install again")
    return f"hello is {sounds}"


def check_checkpoint(settings: Settings) -> str:
    """Load the model, and encode and decode silence with its codec."""
    import torch

    from models.checkpoints.files import CheckpointError
    from models.checkpoints.sources import open_speech_model

    try:
        published = _as_published(settings)
        speech = open_speech_model(
            settings.model,
            torch.device("cpu"),
            cache=Path(settings.cache),
            offline=settings.offline,
            decoder=settings.decoder,
        )
    except CheckpointError as error:
        raise CommandError(f"{error}; name another model with --model or TTS_MODEL") from error
    codec = speech.codec
    second = torch.zeros(codec.config.sample_rate_hz)
    decoded = codec.decode(codec.encode(second))
    if not torch.isfinite(decoded).all():
        raise CommandError("the codec decodes silence to samples that are not finite")
    millions = sum(weights.numel() for weights in speech.model.parameters()) / 1e6
    return (
        f"{speech.name}, {millions:.1f} M parameters, codec {codec.config.sample_rate_hz} Hz,"
        f" sha256 {speech.sha256[:12]}{published}"
    )


def _as_published(settings: Settings) -> str:
    """Compare a model of the hub with its published hash; return a note on the result."""
    from models.checkpoints.files import sha256_of
    from models.checkpoints.hub import find

    wanted = find(settings.model)
    if wanted is None or not wanted.sha256:
        return ""
    here = wanted.local()
    if here.is_file() and sha256_of([here]) != wanted.sha256:
        raise CommandError(f"{here} differs from the published file: remove it to fetch it again")
    return ", as published"


def check_formats(_: Settings) -> str:
    """Encode silence in each audio format."""
    import numpy as np

    from app.audio.containers import encode_file

    silence = np.zeros(2400, np.float32)
    for form in get_args(AudioFormat):
        try:
            encode_file(silence, form, 24_000)
        except Exception as error:
            raise CommandError(f"{form}: {error}; run scripts/install again") from error
    return ", ".join(get_args(AudioFormat))


def check_presets(settings: Settings) -> str:
    """Read the preset files; a PresetError says what is wrong with them."""
    return ", ".join(read_presets(settings.presets or None))


def check_keys(settings: Settings) -> str:
    """Read the API keys."""
    from app.api.middleware.access.keys import Keyring

    if Keyring.of(settings):
        return "required"
    if settings.host not in {"127.0.0.1", "::1", "localhost"}:
        raise CheckWarning(
            f"none is required, and others may reach {settings.host}: generate one with"
            " `valle-serve keys new NAME`"
        )
    return "none is required; only this machine can connect"


def check_cache(settings: Settings) -> str:
    """Check that the download folder is writable and has space."""
    free_bytes = shutil.disk_usage(writable(settings.cache, "TTS_CACHE")).free
    folder = Path(settings.cache).expanduser()
    if free_bytes < _NEEDED_BYTES:
        raise CheckWarning(
            f"{folder} has {free_bytes / 1e9:.1f} GB free, and a published model takes about 1:"
            " free some or set TTS_CACHE"
        )
    return f"{folder}, {free_bytes / 1e9:.0f} GB free"


def check_port_or_service(settings: Settings) -> str:
    """Bind the port for a moment, or find a valle-serve that answers there."""
    try:
        return check_port(settings)
    except CommandError:
        host = "127.0.0.1" if settings.host in {"0.0.0.0", "::"} else settings.host
        url = f"http://{f'[{host}]' if ':' in host else host}:{settings.port}"
        version = _version_at(url)
        if version is None:
            raise
        return f"a valle-serve {version} answers at {url}"


def _version_at(url: str) -> str | None:
    """Return the version of the service at a URL; None if no valle-serve answers there."""
    import httpx2

    try:
        about = httpx2.get(f"{url}/openapi.json", timeout=_ASK_S, trust_env=False).json()["info"]
    except (httpx2.HTTPError, ValueError, KeyError, TypeError):
        return None
    return str(about["version"]) if about.get("title") == "valle-serve" else None


@cache
def _loaded(settings: Settings) -> "Synthesizer":
    """Load the model once for all checks, without a sound process."""
    from app.main import load_synthesizer

    return load_synthesizer(settings)


def check_kernels(settings: Settings) -> str:
    """Load the model, which tries each kernel of our own where it is to run."""
    kernels = _loaded(settings).info.kernels
    if "is torch's" in kernels:
        raise CheckWarning(f"steps run in more kernels than they could: {kernels}")
    return kernels or "on a CPU there are none but those of int8 weights"


def check_streams(settings: Settings) -> str:
    """Measure for about a second how many streams this machine sustains."""
    from app.engine.admission.cost_model import CostModel

    model = _loaded(settings)
    capacity = CostModel()
    model.checks.check_deterministic()  # includes what is slow only once
    model.checks.measure(capacity, 1).close()
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
    result = _loaded(settings).checks.check_golden()
    if result is None:
        return "none are stored for this model and these weights"
    if result.different:
        raise CheckWarning(
            f"{result.different} of {result.spoken} golden requests have other codes than those"
            " stored: the same seed gives different speech on this machine than elsewhere;"
            " please report this with the line `device` above and the processor's name"
        )
    return f"{result.spoken} of {result.spoken} requests have the stored codes"


_CHECKS = {
    "python": check_python,
    "device": device.check_device,
    "espeak": check_espeak,
    "model": check_checkpoint,
    "kernels": check_kernels,
    "golden": check_golden,
    "streams": check_streams,
    "formats": check_formats,
    "presets": check_presets,
    "keys": check_keys,
    "state": host.check_state,
    "cache": check_cache,
    "voices": host.check_voices,
    "port": check_port_or_service,
}


class Doctor(Settings):
    """Check that this machine can run the service, and say how to fix what fails.

    One line per check: `ok`; `warn` for what works but not well; `FAIL` for what stops the service.
    """

    shown: ClassVar[Sequence[str]] = (
        *("host", "port", "model", "device", "weights", "decoder", "threads", "cache", "offline"),
        *("voices", "presets", "pronunciations", "api_keys_file", "state", "fused_kernels"),
    )

    def cli_cmd(self) -> None:
        """Run all checks and print one line for each."""
        failed = 0
        for name, check in _CHECKS.items():
            try:
                print(f"ok    {name}: {check(self)}", flush=True)
            except CheckWarning as warning:
                print(f"warn  {name}: {warning}", flush=True)
            except Exception as error:
                failed += 1
                print(f"FAIL  {name}: {error or type(error).__name__}", flush=True)
        if failed:
            raise CommandFailed(f"doctor: {failed} of {len(_CHECKS)} checks failed")
