"""Measure the loudness of speech in each built-in voice and write it to the voices' cards.

Streams start from that level (`app.audio.loudness`). Run it after a change of the model:
``python -m scripts.measure_voices``. A minute on two cores.
"""

import asyncio
import json
from pathlib import Path

import numpy as np

from app.api.schemas import SpeechRequest
from app.engine.engine import SpeechEngine
from app.main import create_engine
from app.settings import BUILTIN_MODEL, Settings
from models.voices.loudness import loudness_lufs

SENTENCES = Path(__file__).resolve().parents[1] / "app" / "commands" / "sentences.txt"
SPOKEN = 10
SEED = 1


async def speech_lufs(engine: SpeechEngine, voice: str, sentences: list[str]) -> float:
    """Return the integrated loudness in LUFS of sentences spoken in a voice."""
    spoken = []
    for sentence in sentences:
        wanted = SpeechRequest(input=sentence, voice=voice, seed=SEED)
        async for chunk in engine.submit(wanted.job(voice, "")):
            spoken.append(chunk.samples)
    return loudness_lufs(np.concatenate(spoken), engine.info.sample_rate_hz)


async def main() -> None:
    """Run the command line."""
    sentences = SENTENCES.read_text("utf-8").splitlines()[:SPOKEN]
    async with create_engine(Settings(model=str(BUILTIN_MODEL))) as engine:
        await engine.lifecycle.wait_ready()
        for voice in engine.voices.builtin:
            assert voice.audio is not None
            path = voice.audio.with_suffix(".json")
            card = json.loads(path.read_text("utf-8"))
            card["speech_lufs"] = round(await speech_lufs(engine, voice.name, sentences), 1)
            path.write_text(json.dumps(card, indent=1, ensure_ascii=False) + "\n", "utf-8")
            print(voice.name, card["speech_lufs"], "LUFS")


if __name__ == "__main__":
    asyncio.run(main())
