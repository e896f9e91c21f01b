"""How fast the studio loads, and how soon after the click it sounds, beside the API itself.

    python -m lab.benchmarks.service.studio http://127.0.0.1:8000

Needs Debian's Chromium and playwright (`scripts/install dev`). The API's first sound is measured
from another process on the same machine, in turns with the page's, with the same seeds.
"""

import argparse
import json
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter
from typing import Any
from urllib.parse import quote, urlsplit

import httpx2
from playwright.sync_api import Browser, sync_playwright

TEXT = "Hello there. This is the built in voice."
PAGE = Path(__file__).resolve().parents[3] / "app" / "studio" / "page"


def api_first_sound_ms(client: httpx2.Client, seed: int) -> float:
    """Milliseconds from the request to the first samples, of the request that the page sends."""
    body = {
        "input": TEXT,
        "seed": seed,
        "trace": True,
        "timestamps": "word",
        "response_format": "pcm",
        "stream": True,
    }
    began_s = perf_counter()
    with client.stream("POST", "/tts", json=body) as answer:
        parts = answer.iter_bytes()
        next(parts)
        took_s = perf_counter() - began_s
        for _ in parts:
            pass
    return 1000 * took_s


def page_first_sound_ms(page: Any, address: str, seed: int) -> float:
    """Milliseconds from the click to the first sample, as the page's own meter tells."""
    page.goto("about:blank")
    page.goto(f"{address}/#{quote(json.dumps({'input': TEXT, 'seed': seed}))}")
    page.wait_for_selector(".chip >> nth=1")
    page.wait_for_timeout(600)
    page.click("button.speak")
    page.wait_for_selector("[data-outcome=done] .first")
    told = page.text_content(".take.open .first")
    page.wait_for_timeout(4000)
    return float(told.split()[-2])


def load(browser: Browser, address: str) -> tuple[float, float, list[str]]:
    """Load the page in a new profile.

    Returns milliseconds to the load event and to the first paint, and the paths of its files.
    """
    page = browser.new_context().new_page()
    paths: list[str] = []
    page.on("request", lambda request: paths.append(urlsplit(request.url).path))
    page.goto(address)
    page.wait_for_selector("#text")
    timing = "performance.getEntriesByType('navigation')[0].loadEventEnd"
    page.wait_for_function(f"{timing} > 0")
    loaded_ms = float(page.evaluate(timing))
    painted = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0"
    page.wait_for_function(f"({painted}) > 0")
    painted_ms = float(page.evaluate(painted))
    page.context.close()
    return loaded_ms, painted_ms, [path for path in paths if path.startswith("/studio/")]


def to_speak(
    browser: Browser, address: str, *, bytes_s: float = -1, latency_ms: float = 0
) -> tuple[float, float, float]:
    """Load the page in a new profile, over a line of a rate and with a delay of each answer.

    Returns seconds until *Speak* can be pressed, and bytes on the wire until then and in all.
    """
    context = browser.new_context()
    page = context.new_page()
    wire = context.new_cdp_session(page)
    wire.send("Network.enable")
    line = {"downloadThroughput": bytes_s, "uploadThroughput": bytes_s, "latency": latency_ms}
    wire.send("Network.emulateNetworkConditions", {"offline": False, **line})
    sizes: list[float] = []
    wire.on("Network.loadingFinished", lambda told: sizes.append(told["encodedDataLength"]))
    # Nothing is spoken by itself, as on a second visit: that is no part of the page.
    page.add_init_script("localStorage.keepsTakes = 'yes'")
    began_s = perf_counter()
    page.goto(address, timeout=120_000, wait_until="commit")
    page.wait_for_selector("button.speak:enabled", timeout=120_000)
    took_s = perf_counter() - began_s
    before = sum(sizes)
    page.wait_for_load_state("networkidle", timeout=120_000)
    context.close()
    return took_s, before, sum(sizes)


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("address")
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("--loads", action="store_true", help="load the page, and speak nothing")
    wanted = parser.parse_args()
    address = wanted.address.rstrip("/")
    size = sum(path.stat().st_size for path in PAGE.iterdir())
    with sync_playwright() as driver, httpx2.Client(base_url=address, timeout=60) as client:
        browser = driver.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        loads = [load(browser, address) for _ in range(wanted.times)]
        slow = [
            to_speak(browser, address, bytes_s=20_000, latency_ms=600) for _ in range(wanted.times)
        ]
        page = browser.new_context().new_page()
        api, shown = [], []
        for seed in range(0 if wanted.loads else wanted.times):
            api.append(api_first_sound_ms(client, seed))
            shown.append(page_first_sound_ms(page, address, seed))
        browser.close()
    print(f"own bytes {size}, files {len(loads[0][2])} beside the HTML")
    measured = {
        "at 20 kB/s and 600 ms: ms to Speak": [1000 * one[0] for one in slow],
        "bytes on the wire before Speak": [one[1] for one in slow],
        "bytes on the wire in all": [one[2] for one in slow],
        "load event ms": [one[0] for one in loads],
        "first paint ms": [one[1] for one in loads],
        "first sound of the API ms": api,
        "first sound in the page ms": shown,
        "page minus API ms": [b - a for a, b in zip(api, shown, strict=True)],
    }
    for name, values in measured.items():
        if not values:
            continue
        ends = quantiles(values, n=10)
        print(f"{name}: median {median(values):.0f}, p10 {ends[0]:.0f}, p90 {ends[-1]:.0f}")


if __name__ == "__main__":
    main()
