"""Hear a text while it is made. Needs Python alone.

python examples/stream.py "Hello there." hello.pcm [http://127.0.0.1:8000]
python examples/stream.py "Hello there." /dev/stdout | aplay -f S16_LE -r 24000 -c 1
"""

import json
import sys
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen


def main(text: str, out: str, address: str = "http://127.0.0.1:8000") -> None:
    """Write samples of 16 bits as they come; whoever stops reading stops the speech."""
    body = json.dumps({"input": text, "response_format": "pcm", "stream": True}).encode()
    wanted = Request(f"{address}/v1/audio/speech", body, {"content-type": "application/json"})
    try:
        answer = urlopen(wanted, timeout=60)
    except HTTPError as refused:
        sys.exit(json.load(refused)["error"]["message"])
    except URLError as error:
        sys.exit(f"no server answers at {address} ({error.reason}): start one with scripts/serve")
    with answer, Path(out).open("wb") as file:
        print(f"first sound after {answer.headers['x-ttfa-ms']} ms", file=sys.stderr)
        while chunk := answer.read1():  # raises if the speech breaks on the way
            file.write(chunk)
            file.flush()


if __name__ == "__main__":
    if len(sys.argv) not in {3, 4}:
        sys.exit(__doc__)
    main(*sys.argv[1:])
