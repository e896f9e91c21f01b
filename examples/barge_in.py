"""Interrupt a speech with another.

python examples/barge_in.py "A long text." "A short one." [ws://127.0.0.1:8000]
"""

import asyncio
import json
import sys

from websockets.asyncio.client import ClientConnection, connect


async def say(session: ClientConnection, text: str) -> None:
    """Begin a response and give it its whole text."""
    for message in (
        {"type": "response.create"},
        {"type": "input_text.append", "sequence": 0, "text": text},
        {"type": "input_text.end", "sequence": 1},
    ):
        await session.send(json.dumps(message))


async def main(first: str, second: str, address: str = "ws://127.0.0.1:8000") -> None:
    """Cancel the first speech at its first sound, as if the user had begun to talk."""
    url = f"{address}/v1/audio/speech/stream"
    async with connect(url, subprotocols=["valle.speech.v1"]) as session:
        await say(session, first)
        interrupted, done = False, 0
        async for message in session:
            if isinstance(message, bytes) and not interrupted:
                interrupted = True
                await session.send(json.dumps({"type": "response.cancel"}))
                await say(session, second)  # no need to wait: messages are seen to in order
            elif isinstance(message, str) and json.loads(message)["type"] == "response.done":
                event = json.loads(message)
                print(f"{event['finish_reason']} after {event['audio_s']:.2f} s")
                done += 1
                if done == 2:
                    break


if __name__ == "__main__":
    if len(sys.argv) not in {3, 4}:
        sys.exit(__doc__)
    try:
        asyncio.run(main(*sys.argv[1:]))
    except OSError as error:
        sys.exit(f"no server answers ({error.strerror or error}): start one with scripts/serve")
