"""Tools `synthesize` and `list_voices` of the Model Context Protocol, over stdio.

Needs `mcp` and `httpx`. TTS_SERVER is the address of the service, TTS_KEY its key if it has any.
"""

import os
import sys
from base64 import b64encode

try:
    import httpx
    from mcp.server.mcpserver import MCPServer
    from mcp.types import AudioContent, TextContent
except ModuleNotFoundError as missing:
    sys.exit(f"{missing}: pip install mcp httpx")

KEY = os.environ.get("TTS_KEY", "")
HEADERS = {"Authorization": f"Bearer {KEY}"} if KEY else {}
CLIENT = httpx.AsyncClient(
    base_url=os.environ.get("TTS_SERVER", "http://127.0.0.1:8000"), headers=HEADERS, timeout=300
)

server = MCPServer("valle-serve")


@server.tool()
async def synthesize(
    text: str, voice: str = "default", seed: int | None = None, speed: float = 1.0
) -> list[AudioContent | TextContent]:
    """Speak a text; return the audio as WAV, and the seed that gives it again."""
    body = {"input": text, "voice": voice, "seed": seed, "speed": speed}
    answer = await CLIENT.post("/tts", json=body)
    if answer.status_code != 200:
        raise ValueError(answer.json()["error"]["message"])
    told = f"seed {answer.headers['x-seed']}, {int(answer.headers['x-audio-ms']) / 1000:.1f} s"
    sound = b64encode(answer.content).decode()
    return [
        AudioContent(type="audio", data=sound, mime_type="audio/wav"),
        TextContent(type="text", text=told),
    ]


@server.tool()
async def list_voices() -> list[dict[str, str]]:
    """Return the voices: what to call them, their language, and what they are like."""
    voices = (await CLIENT.get("/v1/audio/voices")).raise_for_status().json()["voices"]
    kept = ("id", "name", "language", "description")
    return [{name: one[name] for name in kept} for one in voices if one["alias_of"] is None]


if __name__ == "__main__":
    server.run()
