"""Loads a model to its device, in the number format that it computes in there."""

import logging
import platform
from pathlib import Path
from time import sleep
from typing import TYPE_CHECKING, Final, Literal

import torch

from app.engine.interface import ModelInfo
from gpu import library
from gpu.kernels import TORCH, Kernels, usable
from models.checkpoints.files import CheckpointError
from models.checkpoints.hub import Unreachable
from models.checkpoints.sources import SpeechModel, open_speech_model
from models.config import AlignmentHead, ModelConfig
from models.cuda.kernels import check
from models.placement import prepare_for
from models.valle import Valle
from samplers.cuda.check import trial

if TYPE_CHECKING:
    from app.settings import Settings  # needs pydantic-settings, absent where torch is alone

log = logging.getLogger(__name__)

_X86_64: Final = frozenset({"x86_64", "amd64"})  # names of the processor by operating system
_RETRIES_S: Final = (1, 3, 9)
"""Seconds to wait before each further attempt if the network or the hub does not answer."""


def load_speech(settings: "Settings", device: torch.device) -> SpeechModel:
    """Load a model, in the process and thread that will use it.

    Raises CheckpointError if weights are missing, damaged or not what their description says, or
    there is no such head; Unreachable if they are to be downloaded, and the hub does not answer.
    """
    torch.set_num_threads(settings.threads)
    for wait_s in (*_RETRIES_S, None):
        try:
            speech = open_speech_model(
                settings.model,
                device,
                cache=Path(settings.cache),
                offline=settings.offline,
                decoder=settings.decoder,
            )
            break
        except Unreachable as error:
            if wait_s is None:
                raise
            log.warning("%s; the next attempt is in %d s", error, wait_s)
            sleep(wait_s)
    if settings.alignment:
        head = AlignmentHead.parse(settings.alignment)
        fields = speech.model.config.model_dump() | {"alignment": head.model_dump()}
        try:
            speech.model.config = ModelConfig.model_validate(fields)
        except ValueError as error:
            raise CheckpointError(f"alignment: {error}") from error
    if device.type == "cuda":
        place_on_gpu(speech.model, device, fused=settings.fused_kernels != "off")
    else:
        from cpu import first_start

        first_start.watch()
        if choose_weights(settings.weights) == "int8":
            from models.int8.quantized import quantize_linears

            quantize_linears(speech.model)
    return speech


def place_on_gpu(model: Valle, device: torch.device, *, fused: bool) -> None:
    """Move a model to a GPU, in the number format that it computes in there.

    If ``fused``, it runs the kernels of our own that agree with PyTorch's operators there.
    """
    library.set_up()
    prepare_for(device, model)
    model.transformer.kernels = usable_kernels(model.config, device) if fused else TORCH


def usable_kernels(config: ModelConfig, device: torch.device) -> Kernels:
    """Return which kernels, of models and of samplers, compute there what references do."""
    narrow = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    dtype = torch.bfloat16 if narrow else torch.float32
    trials = check.trials(config, device, dtype)
    return usable([*trials, trial(config.codes + 1, config.stop_token, device)])


def model_info(speech: SpeechModel, device: torch.device) -> ModelInfo:
    """Return what the outside may know of a loaded model; how rows batch is measured if need be."""
    model = speech.model
    codec = speech.codec.config
    quantized = False
    batching = ""
    if device.type == "cpu":
        from models.int8.quantized import is_quantized

        quantized = is_quantized(model)
        batching = "in integers" if quantized else str(model.transformer.batching)
    return ModelInfo(
        speech.name,
        speech.sha256,
        str(device),
        codec.sample_rate_hz,
        model.config.languages,
        "int8" if quantized else str(model.separator.dtype).removeprefix("torch."),
        speech.decoder_name,
        codec.frame_rate_hz,
        batching,
        model.config.alignment is not None,
        model.config.levels,
        model.config.codes,
        "" if device.type == "cpu" else str(model.transformer.kernels),
    )


def choose_weights(wanted: Literal["auto", "int8", "float32"]) -> Literal["int8", "float32"]:
    """Return the weights to use on a CPU; `auto` is int8 on x86 processors, else float32.

    Elsewhere int8 works too, but without instructions of its own it was never measured to be
    faster: `models.int8.processors.Plain`.
    """
    if wanted != "auto":
        return wanted
    return "int8" if platform.machine().lower() in _X86_64 else "float32"


def choose_device(wanted: Literal["auto", "cpu", "cuda"]) -> torch.device:
    """Return the device to use; `auto` is the GPU if there is one, else the CPU."""
    if wanted == "auto":
        wanted = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(wanted)
