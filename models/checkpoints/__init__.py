"""Loading, downloading, checking and converting checkpoints; one adapter for each file layout.

Owns layouts: `builtin`, `published` (ecker/vall-e), `encodec`, `vocos`; `open_speech_model` loads
any of them by name. Does not know what is done with a loaded model.
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
    save_prior,
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
    "save_prior",
]
