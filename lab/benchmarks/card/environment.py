"""Description of the machine: device, driver, libraries, bandwidth, missing packages."""

import importlib.util
import platform
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from time import perf_counter

import torch

from lab.benchmarks.harness.report import TableRow, Target

PACKAGES: Sequence[str] = (
    "torch", "triton", "numpy", "numba", "safetensors", "transformers", "pydantic",
    "pydantic_settings", "fastapi", "uvicorn", "httpx2", "websockets", "av", "soundfile",
    "phonemizer", "espeakng_loader", "pytest", "pytest_timeout", "hypothesis",
)  # fmt: skip
"""Import names of the packages that the parts need."""


def synchronize(device: torch.device) -> None:
    """Wait for all work queued on a device; nothing on a CPU."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def missing(names: Sequence[str]) -> list[str]:
    """Return those modules that are not installed."""
    return [name for name in names if importlib.util.find_spec(name) is None]


def bandwidth_gb_s(device: torch.device, mib: int) -> float:
    """Return the bytes read and written a second by a copy on the device, in GB/s."""
    source = torch.zeros(mib << 18, device=device)
    target = torch.zeros_like(source)
    seconds = []
    for _ in range(10):
        synchronize(device)
        started_s = perf_counter()
        target.copy_(source)
        synchronize(device)
        seconds.append(perf_counter() - started_s)
    return 2 * source.nbytes / min(seconds) / 1e9


def describe(device: torch.device, *, tiny: bool) -> tuple[list[TableRow], list[Target]]:
    """Return the table of facts, without targets."""
    found = {
        "python": platform.python_version(),
        "device": "cpu",
        "copies, GB/s": f"{bandwidth_gb_s(device, 8 if tiny else 1024):.0f}",
        "missing": ", ".join(missing(PACKAGES)) or "nothing",
    }
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        cudnn = torch.backends.cudnn.version()  # type: ignore[no-untyped-call]
        free, total = torch.cuda.mem_get_info(device)
        found |= {
            "device": f"{properties.name}, sm_{properties.major}{properties.minor}",
            "memory, GB": f"{free / 1e9:.1f} of {total / 1e9:.1f} free",
            "CUDA, cuDNN": f"{torch.version.cuda}, {cudnn}",
        }
    for name in PACKAGES:
        if not missing([name]):
            found[name] = _version(name)
    return [{"what": what, "found": value} for what, value in found.items()], []


def _version(name: str) -> str:
    try:
        return version(name.replace("_", "-"))
    except PackageNotFoundError:
        return "present"
