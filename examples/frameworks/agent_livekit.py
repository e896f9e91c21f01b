"""Speak a text as a LiveKit agent does while a language model writes it, and save it as WAV.

Needs `livekit-agents` and `livekit-plugins-elevenlabs`: agent_livekit.py "Hello there." hello.wav
"""

import asyncio
import os
import pathlib
import sys

try:
    import aiohttp
    from livekit import rtc
    from livekit.agents.types import USERDATA_TIMED_TRANSCRIPT
    from livekit.plugins import elevenlabs
except ModuleNotFoundError as missing:
    sys.exit(f"{missing}: pip install livekit-agents livekit-plugins-elevenlabs")

SERVER = os.environ.get("TTS_SERVER", "http://127.0.0.1:8000")


async def main(text: str, path: str) -> None:
    """Write a text word by word into a stream of LiveKit's ElevenLabs service."""
    async with aiohttp.ClientSession() as session:
        tts = elevenlabs.TTS(
            api_key=os.environ.get("TTS_KEY", "none"),
            base_url=f"{SERVER}/v1",
            voice_id="emma",
            encoding="pcm_24000",
            preferred_alignment="original",  # words as written: $100, not one hundred dollars
            http_session=session,
        )
        frames: list[rtc.AudioFrame] = []
        async with tts.stream() as stream:
            for word in text.split():
                stream.push_text(f"{word} ")
                await asyncio.sleep(0.05)
            stream.end_input()
            async for audio in stream:
                frames.append(audio.frame)
                for timed in audio.frame.userdata.get(USERDATA_TIMED_TRANSCRIPT, []):
                    print(f"{timed.start_time:6.2f} s {timed}")
        await tts.aclose()
    with pathlib.Path(path).open("wb") as file:
        file.write(rtc.combine_audio_frames(frames).to_wav_bytes())


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
