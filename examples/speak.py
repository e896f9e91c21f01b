"""Say a text, whole. Needs Python alone.

python examples/speak.py "Hello there." hello.wav [http://127.0.0.1:8000]
"""

import json
import sys
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen


def main(text: str, out: str, address: str = "http://127.0.0.1:8000") -> None:
    """Ask for a WAV, and then for how it was made."""
    body = json.dumps({"input": text, "response_format": "wav"}).encode()
    wanted = Request(f"{address}/v1/audio/speech", body, {"content-type": "application/json"})
    try:
        with urlopen(wanted, timeout=300) as answer:
            Path(out).write_bytes(answer.read())
            speech_id = answer.headers["x-request-id"]
        with urlopen(f"{address}/v1/audio/speech/{speech_id}", timeout=60) as answer:
            report = json.load(answer)
    except HTTPError as refused:
        sys.exit(json.load(refused)["error"]["message"])
    except URLError as error:
        sys.exit(f"no server answers at {address} ({error.reason}): start one with scripts/serve")
    print(f"{report['audio_s']:.2f} s, seed {report['request']['params']['seed']}")


if __name__ == "__main__":
    if len(sys.argv) not in {3, 4}:
        sys.exit(__doc__)
    main(*sys.argv[1:])
