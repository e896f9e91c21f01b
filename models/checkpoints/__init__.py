"""From files to models: one adapter a published layout.

The built-in layout is `builtin`, those of ecker/vall-e `public`, official EnCodec `encodec`,
Vocos for it `vocos`; `open_speech_model` takes whatever an operator names.
"""

from models.checkpoints.builtin import (
    DecoderName,
    SpeechModel,
    load_codec,
    load_lm,
    load_speech_model,
    read_codec_config,
    save_codec,
    save_lm,
)
from models.checkpoints.files import CheckpointError
from models.checkpoints.sources import open_speech_model

__all__ = [
    "CheckpointError",
    "DecoderName",
    "SpeechModel",
    "load_codec",
    "load_lm",
    "load_speech_model",
    "open_speech_model",
    "read_codec_config",
    "save_codec",
    "save_lm",
]
