"""Which model is loaded, and how it runs: one object, made once."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, Self

from app.storage.dictionary_files import Dictionaries
from app.storage.voice_store import VoiceStore
from models.checkpoints import DecoderName
from models.checkpoints.hub import CACHE
from models.config import AlignmentHead, KvCacheDtype
from samplers.knobs.presets import PRESETS, Presets


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """Which model is loaded, and how it runs."""

    model: str | Path  # A folder, a published file, or a name of the hub
    device: Literal["auto", "cpu", "cuda"] = "cpu"
    # Number format of the language model's matrices, on a CPU; see `choose_weights`.
    weights: Literal["auto", "int8", "float32"] = "float32"
    decoder: DecoderName = "codec"
    threads: int = 1  # threads of one step
    # Whether kernels of our own are used on a GPU, where they can be.
    fused_kernels: Literal["auto", "off"] = "auto"
    kv_cache_dtype: KvCacheDtype = "auto"  # number format of keys and values on a GPU
    # The head that follows the text, in place of the model's own.
    alignment: AlignmentHead | None = None
    cache: str | Path = CACHE  # folder of codecs that were downloaded and converted
    offline: bool = False
    max_text_chars: int = 4096  # longer texts are refused
    max_audio_s: float = math.inf  # longer speech is refused; see `app.engine.backend.planner`
    presets: Presets = field(default_factory=lambda: PRESETS)
    uploads: VoiceStore | None = None
    # The operator's further names of voices; see `app.engine.voices`.
    voice_names: Mapping[str, str] | None = None
    dictionaries: Dictionaries = field(default_factory=dict)
    sound_process: bool = False  # whether a process of its own makes the sound, on a CPU
    text_process: bool = False  # whether a process of its own reads texts

    def without_requests(self) -> Self:
        """Return what a process needs to load the model: what requests may name stays here."""
        return replace(self, presets={}, uploads=None, voice_names=None, dictionaries={})
