"""From files to models: one adapter a published layout.

So far: the built-in layout (`builtin`) and official EnCodec tensors (`encodec`).
"""

from models.checkpoints.builtin import (
    SpeechModel,
    load_codec,
    load_lm,
    load_speech_model,
    save_codec,
    save_lm,
)
from models.checkpoints.files import CheckpointError

__all__ = [
    "CheckpointError",
    "SpeechModel",
    "load_codec",
    "load_lm",
    "load_speech_model",
    "save_codec",
    "save_lm",
]
