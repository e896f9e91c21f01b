"""Say a text, whole.

python examples/speak.py "Hello there." hello.wav [http://127.0.0.1:8000]
"""

import sys
from pathlib import Path

import httpx


def main(text: str, out: str, address: str = "http://127.0.0.1:8000") -> None:
    """Ask for a WAV, and then for how it was made."""
    with httpx.Client(base_url=address, timeout=300) as client:
        answer = client.post("/v1/audio/speech", json={"input": text, "response_format": "wav"})
        if answer.is_error:
            sys.exit(answer.json()["error"]["message"])
        Path(out).write_bytes(answer.content)
        report = client.get(f"/v1/audio/speech/{answer.headers['x-request-id']}").json()
    print(f"{report['audio_s']:.2f} s, seed {report['request']['params']['seed']}")


if __name__ == "__main__":
    main(*sys.argv[1:])
