"""Encode the built-in voices and silence, and store their codes beside the audio.

Run it after a change of the codec or the voices: ``python -m scripts.encode_voices``.
"""

import torch

from app.settings import BUILTIN_MODEL
from models.checkpoints.files import write_sums
from models.checkpoints.sources import open_speech_model
from models.codecs.shipped_codes import SUFFIX, codec_digest, write_codes
from models.codecs.silence import SHIPPED, silent_codes
from models.voices.voice import BuiltinVoices, PromptCodes

FRAMES = 112
"""Of a voice, 1.5 s: a prompt is read before the first sound, and these were trained on by name."""


def main() -> None:
    """Run the command line."""
    speech = open_speech_model(BUILTIN_MODEL, torch.device("cpu"))
    digest = codec_digest(speech.codec)
    prompts = PromptCodes(speech.codec, torch.device("cpu"), max_frames=FRAMES)
    for voice in BuiltinVoices(BUILTIN_MODEL / "voices"):
        assert voice.audio is not None
        codes = prompts.encode(voice)[:FRAMES]
        write_codes(voice.audio.with_suffix(SUFFIX), codes, digest)
        print(f"{voice.name}: {len(codes)} frames")
    silent = torch.tensor(silent_codes(speech.codec))[:, None]
    write_codes(BUILTIN_MODEL / SHIPPED, silent, digest)
    print(f"silence: {len(silent)} codes")
    write_sums(sorted(BUILTIN_MODEL.glob("*.safetensors")))


if __name__ == "__main__":
    main()
