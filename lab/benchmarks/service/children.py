"""What clients receive while a child process of the service is killed or stopped.

    python -m lab.benchmarks.service.children --out children.json

Some clients stream texts, one after another has its recording read. Meanwhile each child is killed,
stopped for six seconds, or stopped for ever: that of the sound amid its work, the others, whose
work is over at once, just before. A row has how many streams had every byte that they
have undisturbed, the status of the recording's answer, and the seconds to the last of the answers.
A stopped child is found by its deadline, so the bound on seconds has the undisturbed time added.
"""

import hashlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple

import httpx2
import psutil

from lab.benchmarks.harness.http_client import TIMEOUT_S
from lab.benchmarks.harness.instrumented import CHILDREN_PATH
from lab.benchmarks.harness.report import Target, argument_parser, conclude, machine, target
from lab.benchmarks.harness.served import served

CLIENTS: Final = 4
TEXT: Final = "The lamp was lit when the doctor came home. It was late. Nobody had called him."
STOPPED_S: Final = 6.0
ANSWERED_WITHIN_S: Final = 15.0
AMID_S: Final = 0.3
"""How long the sound has been in work when its process is disturbed."""


class Received(NamedTuple):
    """What all clients received."""

    digests: list[str]
    status: int  # of the recording
    last_s: float


def killed(child: psutil.Process) -> None:
    """End a child."""
    child.kill()


def stopped(child: psutil.Process) -> None:
    """Stop a child, and let nobody wake it."""
    child.suspend()


def stopped_for_a_while(child: psutil.Process) -> None:
    """Stop a child for some seconds."""
    child.suspend()
    wake = threading.Timer(STOPPED_S, os.kill, (child.pid, signal.SIGCONT))
    wake.start()


DISTURBANCES: Final[dict[str, Callable[[psutil.Process], None]]] = {
    "killed": killed,
    f"stopped for {STOPPED_S:g} s": stopped_for_a_while,
    "stopped for ever": stopped,
}


def stream(url: str, seed: int) -> str:
    """Have a text streamed; return the digest of its sound, or the status that it got instead."""
    body = {"input": TEXT, "seed": seed, "response_format": "pcm", "stream": True}
    digest = hashlib.sha256()
    try:
        with httpx2.stream("POST", f"{url}/tts", json=body, timeout=TIMEOUT_S) as answer:
            if answer.status_code != 200:
                return str(answer.status_code)
            for part in answer.iter_bytes():
                digest.update(part)
    except httpx2.HTTPError as error:
        return type(error).__name__
    return digest.hexdigest()


def recording_of(url: str, seed: int) -> bytes:
    """Have the service speak a recording; one in which a child ended is not read again."""
    body = {"input": TEXT, "seed": seed, "response_format": "wav"}
    return httpx2.post(f"{url}/tts", json=body, timeout=TIMEOUT_S).content


def read(url: str, recording: bytes) -> int:
    """Have a recording read; return the status."""
    answer = httpx2.post(
        f"{url}/v1/audio/codes",
        content=recording,
        headers={"content-type": "audio/wav"},
        timeout=TIMEOUT_S,
    )
    return answer.status_code


def answers(
    url: str, recording: bytes, disturb: Callable[[], None], *, amid_s: float = 0.0
) -> Received:
    """Ask for all at once, and wait for every answer; disturb before, or so much later."""
    if not amid_s:
        disturb()
    began_s = time.monotonic()
    with ThreadPoolExecutor(CLIENTS + 1) as pool:
        streams = [pool.submit(stream, url, seed) for seed in range(CLIENTS)]
        reading = pool.submit(read, url, recording)
        if amid_s:
            time.sleep(amid_s)
            disturb()
        digests = [one.result() for one in streams]
        status = reading.result()
    return Received(digests, status, time.monotonic() - began_s)


def main() -> int:
    """Run the command line."""
    args = argument_parser(__doc__).parse_args()
    started = machine()
    rows: list[dict[str, Any]] = []
    targets: list[Target] = []
    with served(max_wait_s=300) as url:  # refused is nobody here, however busy the machine is
        recording = recording_of(url, 0)
        read(url, recording)  # its process is started by the first recording
        answers(url, recording, lambda: None)
        alone = answers(url, recording, lambda: None)
        for child in httpx2.get(f"{url}{CHILDREN_PATH}").json():
            if not child.startswith("speech-"):
                continue
            for name, disturb in DISTURBANCES.items():
                answers(url, recording_of(url, 0), lambda: None)  # all are there again
                pid = httpx2.get(f"{url}{CHILDREN_PATH}").json()[child]
                recording = recording_of(url, len(rows) + 1)
                found = answers(
                    url,
                    recording,
                    lambda: disturb(psutil.Process(pid)),  # noqa: B023
                    amid_s=AMID_S if child == "speech-audio" else 0.0,
                )
                whole = sum(map(str.__eq__, found.digests, alone.digests))
                rows.append({
                    "child": child,
                    "what": name,
                    "streams whole": whole,
                    "recording": found.status,
                    "last answer, s": found.last_s,
                })
                targets.append(
                    target(f"{child} {name}: streams not whole", CLIENTS - whole, "==", 0)
                )
                bound_s = ANSWERED_WITHIN_S + alone.last_s
                targets.append(
                    target(f"{child} {name}: last answer, s", found.last_s, "<=", bound_s)
                )
                others = [one for one in found.digests if one not in alone.digests]
                if others:
                    print(f"{child} {name}: {others}", file=sys.stderr)
        rows.append({
            "child": "none",
            "what": "undisturbed",
            "streams whole": CLIENTS,
            "recording": alone.status,
            "last answer, s": alone.last_s,
        })
    return conclude(rows, targets, args.out, started)


if __name__ == "__main__":
    sys.exit(main())
