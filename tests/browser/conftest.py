"""A real Chromium on a real server with the built-in voice.

Debian's package `chromium`, or what TTS_CHROMIUM names; without it these tests are skipped, unless
they were asked for by `scripts/test --browser`.
"""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import httpx
import pytest

from app.main import create_app
from app.settings import Settings
from tests.app.tools.serving import served

HOST = "gpuhost"
"""A name that leads here, in this browser, and is no secure context to it."""

TEXT = "Hello there."
WAIT_MS = 60_000

# Keeps what is scheduled to be played.
LISTENER = """
window.scheduled = [];
const start = AudioBufferSourceNode.prototype.start;
AudioBufferSourceNode.prototype.start = function (when = 0, ...rest) {
  const samples = [...this.buffer.getChannelData(0)];
  scheduled.push({ when, samples, rate: this.context.sampleRate });
  return start.call(this, when, ...rest);
};
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    path = shutil.which("chromium")
    if path is None:
        pytest.skip("no chromium: apt-get install chromium")
    playwright = pytest.importorskip("playwright.sync_api")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=path,
            args=[
                "--no-sandbox",
                f"--host-resolver-rules=MAP {HOST} 127.0.0.1",
                "--use-fake-device-for-media-stream",  # a microphone that hears beeps
                "--use-fake-ui-for-media-stream",
            ],
        )
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A client of a server that speaks with the built-in voice."""
    voices = str(tmp_path_factory.mktemp("voices"))
    settings = Settings(device="cpu", voices=voices, allowed_hosts=HOST)
    with served(create_app(settings)) as client:
        yield client


# A page that was here before: with all knobs and curves open, and no first take.
RETURNING = """
try {
  localStorage.knobs ??= "open";
  localStorage.curves ??= "open";
  localStorage.keepsTakes = "yes";
} catch { /* about:blank */ }
"""


class Studio:
    """The page, and what a person does there; by default one who was there before."""

    def __init__(self, page: Any, address: str, *, first_visit: bool = False) -> None:
        self.page, self.address = page, address
        self.errors: list[str] = []
        self.hosts: set[str] = set()
        page.set_default_timeout(WAIT_MS)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("console", self._note)
        page.on("request", self._sent)
        page.add_init_script(LISTENER if first_visit else LISTENER + RETURNING)

    def _sent(self, request: Any) -> None:
        if not request.url.startswith(("blob:", "data:")):
            self.hosts.add(urlsplit(request.url).netloc)

    def _note(self, told: Any) -> None:
        if told.type == "error":
            self.errors.append(told.text)

    def open(self, body: dict[str, Any] | None = None) -> None:
        """Load the page, with a request after the # if there is one, and wait for all of it."""
        link = "#" + quote(json.dumps(body)) if body else ""
        self.page.goto("about:blank")
        self.page.goto(f"{self.address}/{link}")
        self.page.wait_for_selector(".status:text-matches('^(?!not |connecting).+')")
        self.page.wait_for_selector(".chip")
        if self.page.query_selector(".reading[open]") and self.page.input_value("#text").strip():
            self.page.wait_for_selector(".reading li")

    def write(self, text: str) -> None:
        self.page.fill("#text", text)

    def request(self, **body: Any) -> None:
        """Make the request that the page shows."""
        self.page.evaluate("hash => { location.hash = hash; }", quote(json.dumps(body)))
        self.page.wait_for_function(
            "text => document.querySelector('#text').value === text", arg=body["input"]
        )

    def voice(self) -> str:
        """The id of the voice that is chosen."""
        return str(self.page.get_attribute(".chip.chosen", "data-voice"))

    def press_speak(self) -> None:
        """Press the button by the keyboard, and see that the request is sent.

        A click is lost if the page moves between the mouse's two events, as on a slow machine.
        """
        with self.page.expect_request("**/tts"):
            self.page.press("button.speak", "Enter")

    def speak(self) -> int:
        """Speak, wait until the sound and its report are there, and return the take's number."""
        before = self.numbers()
        self.press_speak()
        number = max(before, default=0) + 1
        self.wait_for(number)
        return number

    def wait_for(self, number: int) -> None:
        take = f"[data-take='{number}'][data-outcome=done]"
        self.page.wait_for_selector(f"{take}:is([data-finish=stop], [data-finish=length])")

    def numbers(self) -> list[int]:
        takes = self.page.query_selector_all("[data-take]")
        return [int(take.get_attribute("data-take")) for take in takes]

    def report(self, number: int) -> dict[str, Any]:
        """The report of a take, as the page's own download has it."""
        self.page.click(f"[data-take='{number}'] .actions >> text=Export")
        with self.page.expect_download() as started:
            self.page.click("dialog >> text=JSON with its trace")
        report: dict[str, Any] = json.loads(Path(started.value.path()).read_text())
        self.page.keyboard.press("Escape")
        self.page.wait_for_selector("dialog", state="detached")
        return report

    def markers(self, number: int) -> dict[str, int]:
        """How often each marker is drawn."""
        return {
            marker.get_attribute("data-marker"): int(marker.get_attribute("data-count"))
            for marker in self.page.query_selector_all(f"[data-take='{number}'] [data-marker]")
        }

    def inked(self, selector: str) -> int:
        """How many pixels of a canvas are not blank."""
        return int(
            self.page.eval_on_selector(
                selector,
                "canvas => canvas.getContext('2d')"
                ".getImageData(0, 0, canvas.width, canvas.height)"
                ".data.filter((value, n) => n % 4 === 3 && value > 0).length",
            )
        )

    def add_voice(self, name: str, file: Path | None = None) -> None:
        """Fill in the dialog of a voice, which has a recording if there is no file, and send it."""
        self.page.fill("dialog [name=name]", name)
        if file is not None:
            self.page.set_input_files("dialog [name=file]", str(file.resolve()))
        self.page.check("dialog [name=consent]")
        self.page.press("text=Add the voice", "Enter")

    def set(self, knob: str, value: str) -> None:
        """Write into the field of a knob, which a search finds."""
        self.page.fill("#search", knob)
        self.page.fill(f"#knob-{knob}", value)

    def told(self) -> str:
        """What screen readers were told last."""
        return str(self.page.text_content("p[role=status].unseen"))


@contextmanager
def visiting(
    browser: Any,
    server: httpx.Client,
    *,
    first_visit: bool = False,
    address: str = "",
    width: int = 1400,
    **options: Any,
) -> Iterator[Studio]:
    """Give a page that is not loaded yet, nothing kept from before; no error, no other host."""
    size = {"width": width, "height": 1000 if width > 1000 else 844}
    context = browser.new_context(viewport=size, **options)
    address = address or str(server.base_url).rstrip("/")
    studio = Studio(context.new_page(), address, first_visit=first_visit)
    try:
        yield studio
    finally:
        context.close()
    assert studio.errors == []
    assert studio.hosts == {urlsplit(address).netloc}


@pytest.fixture
def studio(browser: Any, server: httpx.Client) -> Iterator[Studio]:
    """The page on a wide screen, with a text that is soon spoken."""
    with visiting(browser, server) as studio:
        studio.open()
        studio.write(TEXT)
        yield studio


@pytest.fixture(scope="module")
def spoken(browser: Any, server: httpx.Client) -> Iterator[Studio]:
    """One with take 1, which is drawn, for tests that only look at it."""
    with visiting(browser, server) as studio:
        studio.open()
        studio.write(TEXT)
        assert studio.speak() == 1
        studio.page.wait_for_selector("[data-take='1'] [data-curve]")
        yield studio
