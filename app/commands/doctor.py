"""`valle-serve doctor`: whether this machine can speak, and what to do if not."""

import platform
import socket
from collections.abc import Callable
from pathlib import Path

from app.commands.errors import FAILED, CommandError
from app.preset_files import read_presets
from app.settings import Settings


class Doctor(Settings):
    """Check that this machine can speak, and say what to do if not."""

    def cli_cmd(self) -> None:
        """Print one line a check.

        Raises:
            SystemExit: A check failed.
        """
        checks: dict[str, Callable[[Settings], str]] = {
            "python": lambda _: platform.python_version(),
            "device": _check_device,
            "espeak": _check_espeak,
            "model": _check_model,
            "presets": _check_presets,
            "port": _check_port,
        }
        failed = False
        for name, check in checks.items():
            try:
                print(f"ok    {name}: {check(self)}")
            except Exception as error:
                failed = True
                print(f"FAIL  {name}: {error}")
        if failed:
            raise SystemExit(FAILED)


def _check_device(settings: Settings) -> str:
    import torch

    from app.engine.synthesis import choose_device

    if settings.device == "cuda" and not torch.cuda.is_available():
        raise CommandError(
            f"torch {torch.__version__} sees no GPU; install its CUDA build and the driver,"
            " or set TTS_DEVICE=cpu"
        )
    place = choose_device(settings.device)
    name = torch.cuda.get_device_name(place) if place.type == "cuda" else platform.processor()
    return f"{place} {name}".strip() + f", torch {torch.__version__}"


def _check_espeak(_: Settings) -> str:
    from models.text import phonemize

    sounds = phonemize("hello")
    if not sounds:
        raise CommandError("espeak-ng gives no phonemes; run scripts/install again")
    return f"hello is {sounds}"


def _check_model(settings: Settings) -> str:
    import torch

    from models.checkpoints import CheckpointError, open_speech_model

    try:
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
        raise CommandError("the codec turns silence into samples that are no numbers")
    millions = sum(weights.numel() for weights in speech.model.parameters()) / 1e6
    return (
        f"{speech.name}, {millions:.1f} M parameters, codec {codec.config.sample_rate_hz} Hz,"
        f" sha256 {speech.sha256[:12]}"
    )


def _check_presets(settings: Settings) -> str:
    return ", ".join(read_presets(settings.presets or None))


def _check_port(settings: Settings) -> str:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((settings.host, settings.port))
        except OSError as error:
            raise CommandError(
                f"{settings.host}:{settings.port}: {error.strerror}; free it or set TTS_PORT"
            ) from error
        return f"{settings.host}:{probe.getsockname()[1]} is free"
