"""Compare two checkouts: the same requests must give the same codes and the same bytes in both.

    python -m lab.benchmarks.service.unchanged --before ../valle-before --out unchanged.json

Every request has a seed, a preset and, in all but the first ones, knobs of its own, sampled from
`KNOBS` with a fixed seed. Each checkout serves in a process of its own, one after the other, and
speaks every request whole, streamed and over the WebSocket. A request that one of them refuses must
be refused by the other with the same type, code and parameter; the message may be worded otherwise.
"""

import argparse
import asyncio
import json
import os
import random
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx2

from app.commands.bench.listeners import receive
from lab.benchmarks.harness.http_client import codes_sha256, open_client
from lab.benchmarks.harness.report import conclude, machine, target
from lab.benchmarks.harness.served import wait_until_ready
from lab.benchmarks.harness.texts import texts
from lab.benchmarks.harness.websocket_client import receive_live

MANNERS = ("whole", "streamed", "websocket")
PRESETS = ("auto", "default", "greedy", "stable", "expressive", "hf", "llama_cpp", "vall_e")
KNOBS: Sequence[dict[str, Any]] = (
    {"top_k": 40, "temperature": 0.9},
    {"top_p": 0.8, "min_p": 0.02},
    {"typical_p": 0.9},
    {"epsilon_cutoff": 0.002},
    {"mirostat_mode": 1, "mirostat_tau": 4.0},
    {"mirostat_mode": 2, "mirostat_tau": 3.0},
    {"xtc_probability": 0.3, "xtc_threshold": 0.05},
    {"top_n_sigma": 1.2},
    {"dry_multiplier": 0.8},
    {"no_repeat_ngram_size": 5},
    {
        "repetition_penalty": 1.2,
        "repetition_penalty_window": 40,
        "repetition_penalty_mode": "signed",
    },
    {"frequency_penalty": 0.2, "presence_penalty": 0.1},
    {"ras": True},
    {"entropix": True},
    {"entropix": True, "entropix_action": "branch"},
    {"entropix": True, "entropix_action": "pause"},
    {"backtrack": True, "backtrack_max_silence": 20},
    {"best_of": 3},
    {"beam_width": 3},
    {"cfg_strength": 1.0},
    {"cfg_strength": 3.0, "cfg_rescale": 0.7},
    {"nar_decision": "mean"},
    {"nar_temperature": 0.7},
    {"nar_levels": 3},
    {"nar_cfg_strength": 1.5},
    {"logit_bias": {"17": -4.0, "100": 2.0}},
    {"length_penalty": 0.01, "length_penalty_mode": "signed"},
    {"eta_cutoff": 0.002, "min_temperature": 0.3},
    {"exponential_decay_start": 60, "exponential_decay_factor": 1.01},
    {"context_utterances": 2},
    {"pause_s": 0.4},
    {"speed": 1.25},
    {"loudness_lufs": -20.0},
    {"max_duration_s": 0.8},
)


class Request(NamedTuple):
    """One text with every field that is not left to its default."""

    text: str
    fields: dict[str, Any]


class Answer(NamedTuple):
    """What came of a request: equal answers are the same speech, or the same refusal."""

    status: int
    codes: str
    sound: str


def requests(count: int, sentences_each: int = 1) -> list[Request]:
    """Return requests of mixed knobs, the same in every call."""
    generator = random.Random(0)
    made = []
    for number, text in enumerate(texts(count, sentences_each=sentences_each)):
        fields: dict[str, Any] = {"seed": number, "preset": PRESETS[number % len(PRESETS)]}
        if fields["preset"] == "stable":  # what a decay in mode additive does was changed since
            fields["repetition_penalty_decay"] = 0.0
        if number >= len(PRESETS):
            fields |= KNOBS[number % len(KNOBS)]
        if number >= len(PRESETS) + len(KNOBS):
            fields |= generator.choice(KNOBS)
        made.append(Request(text, fields))
    return made


@contextmanager
def serving(checkout: Path) -> Iterator[str]:
    """Serve from a checkout with this interpreter; give the address once it is ready."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = {"TTS_PORT": str(port), "TTS_LOG_LEVEL": "warning", "TTS_MAX_QUEUE": "64"}
    process = subprocess.Popen(
        [sys.executable, "-m", "app", "serve"],
        cwd=checkout,
        env=os.environ | settings | {"PYTHONPATH": str(checkout)},
    )
    url = f"http://127.0.0.1:{port}"
    try:
        wait_until_ready(url, lambda: process.poll() is None)
        yield url
    finally:
        process.terminate()
        process.wait()


async def answers(url: str, wanted: Sequence[Request]) -> dict[str, list[Answer]]:
    """Speak every request in every manner, one at a time."""
    async with open_client(url) as client:
        found: dict[str, list[Answer]] = {}
        for manner in MANNERS:
            found[manner] = [await _answer(client, url, one, manner) for one in wanted]
    return found


async def _answer(client: httpx2.AsyncClient, url: str, request: Request, manner: str) -> Answer:
    if manner == "websocket":
        received = await receive_live(url, request.text, **request.fields)
    else:
        streamed = manner == "streamed"
        received = await receive(client, request.text, stream=streamed, **request.fields)
    if received.ok:
        codes = await codes_sha256(client, received)
        return Answer(received.status, codes, received.sound_sha256)
    return Answer(received.status, "", _refusal(received.sound))


def _refusal(body: bytes) -> str:
    """Return what a program reads of an error's body: all but the message."""
    try:
        error: dict[str, Any] = json.loads(body)["error"]
    except (ValueError, LookupError, TypeError):
        return repr(body)
    return json.dumps({name: value for name, value in error.items() if name != "message"})


def compare(
    before: dict[str, list[Answer]], after: dict[str, list[Answer]]
) -> list[dict[str, Any]]:
    """Return a row a manner: how many requests, spoken in both, with equal codes and bytes."""
    rows = []
    for manner, old in before.items():
        pairs = list(zip(old, after[manner], strict=True))
        rows.append({
            "manner": manner,
            "requests": len(pairs),
            "spoken": sum(one.status == 200 and bool(one.codes) for one, _ in pairs),
            "same codes": sum(one[:2] == other[:2] for one, other in pairs),
            "same bytes": sum(one == other for one, other in pairs),
        })
    return rows


def main() -> int:
    """Compare, print one table and write JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--before", type=Path, required=True, help="folder of the other checkout")
    parser.add_argument("--after", type=Path, default=Path())
    parser.add_argument("--requests", type=int, default=100)
    parser.add_argument("--out", type=Path, help="JSON file")
    args, started = parser.parse_args(), machine()
    wanted, found = requests(args.requests), []
    for checkout in (args.before, args.after):
        with serving(checkout.resolve()) as url:
            found.append(asyncio.run(answers(url, wanted)))
    rows = compare(*found)
    for manner in MANNERS:
        for number, (old, new) in enumerate(zip(found[0][manner], found[1][manner], strict=True)):
            if old != new:
                print(manner, number, wanted[number], old, new)
    other = sum(row["requests"] - row["same bytes"] for row in rows)
    targets = [target("answers that differ", other, "==", 0)]
    return conclude(rows, targets, args.out, started)


if __name__ == "__main__":
    sys.exit(main())
