"""Loading, downloading and checking checkpoints, an adapter for each layout of files."""

from models.checkpoints.builtin import (
    load_codec,
    load_lm,
    read_codec_config,
    save_codec,
    save_lm,
    save_prior,
)
from models.checkpoints.files import CheckpointError
from models.checkpoints.sources import DecoderName, SpeechModel, open_speech_model

__all__ = [
    "CheckpointError",
    "DecoderName",
    "SpeechModel",
    "load_codec",
    "load_lm",
    "open_speech_model",
    "read_codec_config",
    "save_codec",
    "save_lm",
    "save_prior",
]
