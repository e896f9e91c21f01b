"""Ask the service of a container whether it is ready: `python -m valle_serve.ready`.

Prints what `/ready` says, for the log of health checks; imports nothing that takes time.
"""

import json
import os
import sys
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import ProxyHandler, build_opener

_TIMEOUT_S = 4


def main() -> int:
    """Return 0 if the service that wrote the file `TTS_PORT_FILE` is ready, else 1."""
    try:
        port = int(Path(os.environ["TTS_PORT_FILE"]).read_text("utf-8"))
        with build_opener(ProxyHandler({})).open(
            f"http://127.0.0.1:{port}/ready", timeout=_TIMEOUT_S
        ):
            said = "ready"
            status = 0
    except HTTPError as error:
        said = str(json.load(error)["error"]["message"])
        status = 1
    except OSError as error:  # no port yet, or nobody answers
        said = f"no answer: {error}"
        status = 1
    sys.stdout.write(f"{said}\n")
    return status


if __name__ == "__main__":
    sys.exit(main())
