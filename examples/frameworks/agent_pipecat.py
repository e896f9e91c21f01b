"""Speak a text as a Pipecat agent does while a language model writes it, and save it as WAV.

Needs `pipecat-ai`: agent_pipecat.py "Hello there." hello.wav; with a third argument, a number of
seconds, the user interrupts then, and the agent says "Sorry?".
"""

import asyncio
import os
import sys
import wave

try:
    from pipecat.frames.frames import (
        EndFrame,
        ErrorFrame,
        Frame,
        InterruptionFrame,
        LLMFullResponseEndFrame,
        LLMFullResponseStartFrame,
        LLMTextFrame,
        TTSAudioRawFrame,
        TTSStoppedFrame,
        TTSTextFrame,
    )
    from pipecat.pipeline.pipeline import Pipeline
    from pipecat.pipeline.worker import PipelineParams, PipelineWorker
    from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
    from pipecat.services.elevenlabs.tts import ElevenLabsTTSService
    from pipecat.workers.runner import WorkerRunner
except ModuleNotFoundError as missing:
    sys.exit(f"{missing}: pip install pipecat-ai")

SERVER = os.environ.get("TTS_SERVER", "http://127.0.0.1:8000")
RATE_HZ = 16_000


class Speaker(FrameProcessor):
    """Keeps the sound, and tells when a turn has ended."""

    def __init__(self) -> None:
        super().__init__()
        self.sound = b""
        self.ended, self.interrupted = asyncio.Event(), asyncio.Event()

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        """Take what the service makes."""
        await super().process_frame(frame, direction)
        if isinstance(frame, TTSAudioRawFrame):
            self.sound += frame.audio
        elif isinstance(frame, TTSTextFrame):
            print(f"{(frame.pts or 0) / 1e9:6.2f} s {frame.text}")
        elif isinstance(frame, TTSStoppedFrame):
            self.ended.set()
        elif isinstance(frame, InterruptionFrame):
            self.interrupted.set()
        elif isinstance(frame, ErrorFrame):
            print("error", frame.error)
        await self.push_frame(frame, direction)


async def main(text: str, path: str, interrupt_s: float | None) -> None:
    """Send a text word by word through Pipecat's ElevenLabs service."""
    service = ElevenLabsTTSService(
        api_key=os.environ.get("TTS_KEY", "none"),
        url=SERVER.replace("http", "ws", 1),
        sample_rate=RATE_HZ,
        settings=ElevenLabsTTSService.Settings(voice="emma", model="eleven_flash_v2_5"),
        stop_frame_timeout_s=20,  # by itself it gives a turn up after 3 s without sound
    )
    speaker = Speaker()
    worker = PipelineWorker(
        Pipeline([service, speaker]), params=PipelineParams(audio_out_sample_rate=RATE_HZ)
    )
    started = asyncio.Event()

    @worker.event_handler("on_pipeline_started")
    async def _(*_: object) -> None:
        started.set()

    async def say(words: list[str]) -> None:
        speaker.ended.clear()
        await worker.queue_frame(LLMFullResponseStartFrame())
        for word in words:
            await worker.queue_frame(LLMTextFrame(f"{word} "))
            await asyncio.sleep(0.05)
        await worker.queue_frame(LLMFullResponseEndFrame())

    async def talk() -> None:
        await started.wait()
        await say(text.split())
        if interrupt_s is not None:
            await asyncio.sleep(interrupt_s)
            await worker.queue_frame(InterruptionFrame())
            print(f"interrupted after {len(speaker.sound) / 2 / RATE_HZ:.2f} s of sound")
            await speaker.interrupted.wait()  # nothing of the first answer comes after it
            await say(["Sorry?"])
        await asyncio.wait_for(speaker.ended.wait(), 60)
        await worker.queue_frame(EndFrame())

    runner = WorkerRunner()
    await runner.add_workers(worker)
    await asyncio.gather(runner.run(), talk())
    with wave.open(path, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE_HZ)
        file.writeframes(speaker.sound)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], float(sys.argv[3]) if sys.argv[3:] else None))
