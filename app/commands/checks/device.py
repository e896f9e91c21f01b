"""Whether PyTorch, the driver and the GPU fit together."""

import ctypes
import platform
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from app.commands.errors import CommandError, Doubt
from app.settings import Settings

_DRIVER: Final = "libcuda.so.1"


@dataclass(frozen=True)
class Place:
    """What there is to compute with.

    Args:
        built_for: CUDA version of the PyTorch build, like 12.8; None is a build for CPUs.
        driver: CUDA version that the NVIDIA driver takes, like 12.4; None is no driver.
        usable: Whether PyTorch finds a GPU.
        capability: Of the GPU, like (9, 0).
        kernels: What the build has kernels for, like sm_90 and compute_90.
    """

    built_for: str | None
    driver: str | None
    usable: bool
    capability: tuple[int, int] = (0, 0)
    kernels: Sequence[str] = ()


def check_device(settings: Settings) -> str:
    """Find out what would compute.

    Raises:
        CommandError: It is not what was asked for, or cannot compute.
        Doubt: There is a GPU, and it is not used.
    """
    import torch

    from app.engine.backend.loading import choose_device

    usable = torch.cuda.is_available()
    capability = torch.cuda.get_device_capability() if usable else (0, 0)
    kernels = torch.cuda.get_arch_list() if usable else ()
    place = Place(torch.version.cuda, driver_version(), usable, capability, kernels)
    wrong = problem(place)
    if wrong and settings.device != "cpu":
        raise (Doubt if settings.device == "auto" and not usable else CommandError)(wrong)
    if settings.device == "cuda" and not usable:
        raise CommandError("there is no NVIDIA driver, so no GPU; set TTS_DEVICE=cpu")
    device = choose_device(settings.device)
    if device.type != "cuda":
        return f"cpu {platform.processor()}".strip() + f", torch {torch.__version__}"
    free_bytes, _ = torch.cuda.mem_get_info()
    return (
        f"{device} {torch.cuda.get_device_name(device)}, {free_bytes / 1e9:.0f} GB free,"
        f" driver for CUDA {place.driver}, torch {torch.__version__}"
    )


def problem(place: Place) -> str | None:
    """Return why a GPU that is there cannot be used, and what to do; None if it can, or is not."""
    if place.driver is None:
        return None
    if place.built_for is None:
        return (
            "there is an NVIDIA driver, but torch is built for CPUs; remove .venv and run"
            " scripts/install with TORCH_INDEX_URL set to an index of CUDA builds"
        )
    if _major(place.driver) < _major(place.built_for):
        return (
            f"the NVIDIA driver takes CUDA {place.driver}, and torch is built for"
            f" {place.built_for}; update the driver, or install a build for CUDA {place.driver}"
        )
    if not place.usable:
        return (
            "there is an NVIDIA driver, but torch finds no GPU; see whether nvidia-smi lists one,"
            " and in a container whether it was given one (--gpus all)"
        )
    return _without_kernels(place)


def _without_kernels(place: Place) -> str | None:
    """Return what to do about a GPU that the build has no kernels for.

    Kernels of the same major version and none later run, and so does what is compiled on the spot
    from the intermediate code of an earlier one.
    """
    major, minor = place.capability
    for kernel in place.kernels:
        kind, _, digits = kernel.partition("_")
        version = re.match(r"\d+", digits)
        if version is None:
            continue
        built_major, built_minor = divmod(int(version[0]), 10)
        same = built_major == major and built_minor <= minor
        if same or (kind == "compute" and (built_major, built_minor) <= place.capability):
            return None
    return (
        f"torch has no kernels for this GPU (capability {major}.{minor}, the build has"
        f" {', '.join(place.kernels)}); install another build of torch"
    )


def driver_version() -> str | None:
    """Return which CUDA version the NVIDIA driver takes; None if there is no driver."""
    version = ctypes.c_int()
    try:
        status = ctypes.CDLL(_DRIVER).cuDriverGetVersion(ctypes.byref(version))
    except OSError:
        return None
    return f"{version.value // 1000}.{version.value % 1000 // 10}" if status == 0 else None


def _major(version: str) -> int:
    return int(version.partition(".")[0])
