"""Speak a text while it is written.

some-llm | python examples/live.py hello.pcm [ws://127.0.0.1:8000]
"""

import asyncio
import json
import sys
from pathlib import Path

from websockets.asyncio.client import ClientConnection, connect


async def write(session: ClientConnection) -> None:
    """Send what comes on stdin as it comes; speech starts with the first whole sentence."""
    await session.send(json.dumps({"type": "response.create"}))
    sequence = 0
    while text := await asyncio.to_thread(sys.stdin.readline):
        message = {"type": "input_text.append", "sequence": sequence, "text": text}
        await session.send(json.dumps(message))
        sequence += 1
    await session.send(json.dumps({"type": "input_text.end", "sequence": sequence}))


async def main(out: str, address: str = "ws://127.0.0.1:8000") -> None:
    """Write samples of 16 bits as they come."""
    url = f"{address}/v1/audio/speech/stream"
    async with connect(url, subprotocols=["valle.speech.v1"]) as session:
        writing = asyncio.create_task(write(session))
        with Path(out).open("wb") as file:
            async for message in session:
                if isinstance(message, bytes):
                    file.write(message)
                elif (event := json.loads(message))["type"] == "error":
                    sys.exit(event["error"]["message"])
                elif event["type"] == "response.done":
                    print(
                        f"{event['audio_s']:.2f} s, first after {event['first_audio_s'] or 0:.3f} s"
                    )
                    break
        await writing


if __name__ == "__main__":
    if len(sys.argv) not in {2, 3} or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    try:
        asyncio.run(main(*sys.argv[1:]))
    except OSError as error:
        sys.exit(f"no server answers ({error.strerror or error}): start one with scripts/serve")
