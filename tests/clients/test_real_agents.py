"""Pipecat, LiveKit, ElevenLabs' package and MCP's, unmodified, against a live server.

They are large, so they live in an environment of their own, whose Python `AGENTS_PYTHON` names;
without it this is skipped, and `test_contexts.py` sends what was recorded:

    python3 -m venv agents
    agents/bin/pip install pipecat-ai livekit-agents livekit-plugins-elevenlabs elevenlabs mcp httpx
    AGENTS_PYTHON=agents/bin/python scripts/test --all tests/clients/test_real_agents.py
"""

import os
import re
import subprocess
import wave
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from app.main import create_app
from app.settings import Settings
from tests.app.tools.serving import served
from tests.conftest import ROOT
from tests.speech_like import packed, speech_like

PYTHON = os.environ.get("AGENTS_PYTHON", "")
TEXT = "Hello there, my friend. We won the game today. And then we went home."

pytestmark = [
    pytest.mark.slow,
    pytest.mark.weights,
    pytest.mark.skipif(not PYTHON, reason="AGENTS_PYTHON names no environment with the packages"),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    settings = Settings(device="cpu", voices=str(tmp_path_factory.mktemp("voices")))
    with served(create_app(settings)) as client:
        yield client


def run(server: httpx.Client, *command: str | Path) -> str:
    done = subprocess.run(
        [PYTHON, *map(str, command)],
        env=os.environ | {"TTS_SERVER": str(server.base_url).rstrip("/")},
        capture_output=True,
        text=True,
        timeout=280,  # the packages take half a minute of a busy core to import
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def seconds(path: Path) -> float:
    with wave.open(str(path)) as file:
        assert any(file.readframes(file.getnframes()))
        return float(file.getnframes() / file.getframerate())


def words(told: str) -> list[tuple[float, str]]:
    found = re.findall(r"^ *(\d+\.\d+) s (.+?) *$", told, flags=re.MULTILINE)
    return [(float(at), word) for at, word in found]


def test_livekit_speaks_and_knows_when_each_word_is_heard(server, tmp_path) -> None:
    path = tmp_path / "hello.wav"
    told = words(run(server, ROOT / "examples" / "frameworks" / "agent_livekit.py", TEXT, path))
    assert " ".join(word for _, word in told) == TEXT
    starts = [at for at, _ in told]
    assert starts == sorted(starts)
    assert 2 < starts[-1] < seconds(path)


def test_pipecat_speaks_and_knows_when_each_word_is_heard(server, tmp_path) -> None:
    path = tmp_path / "hello.wav"
    told = words(run(server, ROOT / "examples" / "frameworks" / "agent_pipecat.py", TEXT, path))
    assert " ".join(word for _, word in told) == TEXT
    starts = [at for at, _ in told]
    assert starts == sorted(starts)
    assert 2 < starts[-1] - starts[0] < seconds(path)


def test_pipecat_is_interrupted_and_goes_on_with_another_answer(server, tmp_path) -> None:
    path = tmp_path / "hello.wav"
    told = run(
        server, ROOT / "examples" / "frameworks" / "agent_pipecat.py", 10 * f"{TEXT} ", path, "0"
    )
    assert "interrupted after" in told
    said = [word for _, word in words(told)]
    assert said[-1] == "Sorry?"
    assert len(said) < 10 * len(TEXT.split())


ELEVENLABS = """
import os
from elevenlabs.client import ElevenLabs
client = ElevenLabs(api_key="none", base_url=os.environ["TTS_SERVER"])
print([one.voice_id for one in client.voices.get_all().voices if one.voice_id == "emma"])
print(client.voices.search(search="emma").voices[0].name, client.user.get().subscription.tier)
with open(os.environ["RECORDING"], "rb") as file:
    made = client.voices.ivc.create(name="My Voice", files=[file], labels={"consent": "true"})
print(made.voice_id)
for form in ("pcm_16000", "ulaw_8000", "mp3_22050_32"):
    sound = b"".join(client.text_to_speech.convert("emma", text="Hello there.", output_format=form))
    print(form, len(sound) > 2000)
"""


def test_elevenlabs_package_lists_uploads_and_converts(server, tmp_path, monkeypatch) -> None:
    (tmp_path / "me.wav").write_bytes(packed(speech_like(2.0)))
    monkeypatch.setenv("RECORDING", str(tmp_path / "me.wav"))
    told = run(server, "-c", ELEVENLABS).splitlines()
    assert told[0] == "['emma']"
    assert told[1].endswith("self-hosted")
    assert told[2] == "my-voice"
    assert told[3:] == [f"{form} True" for form in ("pcm_16000", "ulaw_8000", "mp3_22050_32")]


MCP = """
import asyncio, base64, os, sys
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
async def main():
    env, script = dict(os.environ), sys.argv[1]
    started = StdioServerParameters(command=sys.executable, args=[script], env=env)
    async with stdio_client(started) as streams, ClientSession(*streams) as session:
        await session.initialize()
        print(sorted(tool.name for tool in (await session.list_tools()).tools))
        spoken = await session.call_tool("synthesize", {"text": "Hello there.", "voice": "emma"})
        print(base64.b64decode(spoken.content[0].data)[:4], spoken.content[1].text)
        print("emma" in str((await session.call_tool("list_voices", {})).content))
asyncio.run(main())
"""


def test_mcp_has_two_tools(server) -> None:
    told = run(server, "-c", MCP, ROOT / "examples" / "frameworks" / "mcp_server.py").splitlines()
    assert told[0] == "['list_voices', 'synthesize']"
    assert told[1].startswith("b'RIFF' seed ")
    assert told[2] == "True"
