"""Check that PyTorch, the NVIDIA driver and the GPU fit together."""

import ctypes
import os
import platform
import re
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from app.commands.errors import CheckWarning, CommandError
from app.settings import Settings

KERNEL_MODULE: Final = "/proc/driver/nvidia/version"
"""There where the host's kernel has the driver, in its containers too."""

_DRIVER: Final = "libcuda.so.1"
_MPS_TIMEOUT_S: Final = 1.0
_LEAST_BYTES: Final = 3 * 10**9
"""Of a GPU: the published model and its codec in bfloat16, CUDA's own, and room for one stream."""


@dataclass(frozen=True)
class CudaFacts:
    """Versions and capabilities of PyTorch, driver and GPU."""

    built_for: str | None  # CUDA version of the PyTorch build, as 12.8; None for a CPU build
    driver: str | None  # CUDA version that the NVIDIA driver supports, as 12.4
    usable: bool  # whether PyTorch finds a GPU
    on_host: bool = False  # whether the kernel has an NVIDIA driver
    visible: str | None = None  # CUDA_VISIBLE_DEVICES
    capability: tuple[int, int] = (0, 0)  # of the GPU, as (9, 0)
    kernels: Sequence[str] = ()  # architectures in the build, as sm_90 and compute_90


def check_device(settings: Settings) -> str:
    """Return a description of the device that the service will use."""
    import torch

    from app.engine.backend.loading import choose_device

    usable = torch.cuda.is_available()
    capability = torch.cuda.get_device_capability() if usable else (0, 0)
    kernels = torch.cuda.get_arch_list() if usable else ()
    facts = CudaFacts(
        torch.version.cuda,
        driver_version(),
        usable,
        Path(KERNEL_MODULE).exists(),
        os.environ.get("CUDA_VISIBLE_DEVICES"),
        capability,
        kernels,
    )
    found = problem(facts)
    if found and settings.device != "cpu":
        raise (CheckWarning if settings.device == "auto" and not usable else CommandError)(found)
    if settings.device == "cuda" and not usable:
        raise CommandError("there is no NVIDIA driver, so no GPU; set TTS_DEVICE=cpu")
    device = choose_device(settings.device)
    if device.type != "cuda":
        return f"cpu {platform.processor()}".strip() + f", torch {torch.__version__}"
    free_bytes, all_bytes = torch.cuda.mem_get_info()
    if free_bytes < _LEAST_BYTES:
        raise CheckWarning(
            f"{torch.cuda.get_device_name(device)} has {free_bytes / 1e9:.1f} of"
            f" {all_bytes / 1e9:.1f} GB free, and {_LEAST_BYTES / 1e9:.0f} are needed; see"
            " nvidia-smi for who has the rest, take a larger MIG instance, or set TTS_DEVICE=cpu"
        )
    has_daemon = mps_runs()
    if settings.gpu_memory_utilization < 1 and not has_daemon:
        raise CheckWarning(
            "TTS_GPU_MEMORY_UTILIZATION says that this GPU is shared, and NVIDIA's MPS does not run"
            f" ({mps_folder()} has no socket): processes take turns on the GPU, and are no faster"
            " together; start nvidia-cuda-mps-control -d before them (docs/replicas.md)"
        )
    return (
        f"{device} {torch.cuda.get_device_name(device)}, {free_bytes / 1e9:.0f} GB free,"
        f" driver for CUDA {facts.driver}, torch {torch.__version__}"
        f"{', MPS runs' if has_daemon else ''}"
    )


def mps_folder() -> Path:
    """Return where the control daemon of NVIDIA's MPS has its pipes and sockets."""
    return Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY") or "/tmp/nvidia-mps")


def mps_runs() -> bool:
    """Return whether a control daemon of MPS listens, to which CUDA would then connect."""
    place = str(mps_folder() / "control")
    for kind in (socket.SOCK_SEQPACKET, socket.SOCK_STREAM):  # NVIDIA does not say which
        with socket.socket(socket.AF_UNIX, kind) as client:
            client.settimeout(_MPS_TIMEOUT_S)
            if client.connect_ex(place) == 0:
                return True
    return False


def problem(facts: CudaFacts) -> str | None:
    """Return why a GPU cannot be used, and how to fix it; None if it can, or there is none."""
    if facts.driver is None and facts.on_host:
        return (
            "this machine has an NVIDIA driver that is out of reach here; in a container, install"
            " the NVIDIA Container Toolkit on the host and start with --gpus all (Compose: as in"
            " docker-compose.yml)"
        )
    if facts.driver is None:
        return None
    if facts.built_for is None:
        return (
            "there is an NVIDIA driver, but torch is built for CPUs; remove .venv and run"
            " scripts/install, without TORCH_INDEX_URL"
        )
    if _major(facts.driver) < _major(facts.built_for):
        return (
            f"the NVIDIA driver supports CUDA {facts.driver}, and torch is built for"
            f" {facts.built_for}; update the driver, or install a build for CUDA {facts.driver}"
        )
    if not facts.usable and facts.visible is not None:
        return (
            f"CUDA_VISIBLE_DEVICES={facts.visible} names no GPU that torch finds; unset it, or take"
            " a name that nvidia-smi -L lists"
        )
    if not facts.usable:
        return (
            "there is an NVIDIA driver, but torch finds no GPU; check that nvidia-smi -L lists one,"
            " with an instance below it where MIG is on, and in a container that it was started"
            " with one (--gpus all)"
        )
    return _missing_kernels(facts)


def _missing_kernels(facts: CudaFacts) -> str | None:
    """Return how to fix a build without kernels for the GPU; None if it has some."""
    major, minor = facts.capability
    for kernel in facts.kernels:
        kind, _, digits = kernel.partition("_")
        version = re.match(r"\d+", digits)
        if version is None:
            continue
        built_major, built_minor = divmod(int(version[0]), 10)
        same = built_major == major and built_minor <= minor
        if same or (kind == "compute" and (built_major, built_minor) <= facts.capability):
            return None
    return (
        f"torch has no kernels for this GPU (capability {major}.{minor}, the build has"
        f" {', '.join(facts.kernels)}); install another build of torch"
    )


def driver_version() -> str | None:
    """Return the CUDA version that the NVIDIA driver supports; None without a driver."""
    version = ctypes.c_int()
    try:
        status = ctypes.CDLL(_DRIVER).cuDriverGetVersion(ctypes.byref(version))
    except OSError:
        return None
    return f"{version.value // 1000}.{version.value % 1000 // 10}" if status == 0 else None


def _major(version: str) -> int:
    return int(version.partition(".")[0])
