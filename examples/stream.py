"""Hear a text while it is made.

python examples/stream.py "Hello there." hello.pcm [http://127.0.0.1:8000]
python examples/stream.py "Hello there." /dev/stdout | aplay -f S16_LE -r 24000 -c 1
"""

import sys
from pathlib import Path

import httpx


def main(text: str, out: str, address: str = "http://127.0.0.1:8000") -> None:
    """Write samples of 16 bits as they come; whoever stops reading stops the speech."""
    wanted = {"input": text, "response_format": "pcm", "stream": True}
    with (
        httpx.Client(base_url=address, timeout=60) as client,
        client.stream("POST", "/v1/audio/speech", json=wanted) as answer,
        Path(out).open("wb") as file,
    ):
        if answer.is_error:
            answer.read()
            sys.exit(answer.json()["error"]["message"])
        print(f"first sound after {answer.headers['x-ttfa-ms']} ms", file=sys.stderr)
        for chunk in answer.iter_raw():  # raises if the speech breaks on the way
            file.write(chunk)
            file.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
