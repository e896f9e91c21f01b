"""The page for who wants to hear it: first visit, downloads, voices, failures, a lost service."""

import io
import json
import re
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from axe_playwright_python.sync_playwright import Axe

from app.main import create_app
from app.settings import Settings
from tests.app.tools.serving import served
from tests.browser.conftest import TEXT, Studio, visiting
from tests.browser.test_takes import sent, two_takes
from tests.fakes import fake_engine

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.weights]


@pytest.fixture
def visitor(browser: Any, server: Any) -> Iterator[Studio]:
    """The page on a phone, for the first time."""
    with visiting(browser, server, first_visit=True, width=390, has_touch=True) as studio:
        studio.open()
        studio.wait_for(1)
        yield studio


def test_a_first_visit_has_a_silent_take_five_settings_and_all_knobs_behind_one_button(
    visitor, server
) -> None:
    page = visitor.page
    assert page.evaluate("scheduled.length") == 0
    shown = [one.strip() for one in page.locator(".knob label:visible").all_text_contents()]
    assert shown == ["Speed", "Pauses", "Liveliness", "Closeness to the text", "Seed"]
    for name in ("A story", "A question", "Numbers"):
        page.press(f".examples >> text={name}", "Enter")
        assert len(page.input_value("#text")) > 40
    page.press("[aria-label='Liveliness, slider']", "ArrowRight")
    page.press("details.knobs > summary", "Enter")
    page.wait_for_selector("#search", state="visible")
    assert re.match(r"All 1\d\d knobs", page.text_content("details.knobs > summary"))
    groups = page.locator("details.group > summary").all_text_contents()
    assert all(re.match(r"[A-Z][a-z]+", group) for group in groups)
    page.fill("#search", "temperature")
    assert "above: Liveliness (temperature)" in page.text_content(".knobs h2[aria-live]")
    with page.expect_request("**/tts") as asked:
        page.press("button.speak", "Enter")
    assert asked.value.post_data_json["temperature"] == pytest.approx(0.75)
    visitor.wait_for(2)
    page.reload()  # the second visit: the takes are there, and none is made
    page.wait_for_selector("[data-take='2'][data-finish]")
    assert page.is_visible("#search")
    assert visitor.numbers() == [2, 1]


def saved(page: Any, button: str) -> bytes:
    with page.expect_download() as started:
        page.press(button, "Enter")
    return Path(started.value.path()).read_bytes()


def test_a_take_is_downloaded_as_wav_and_as_mp3(studio, server) -> None:
    page, number = studio.page, studio.speak()
    wanted = sent(server, studio.report(number)["id"])
    take = f"[data-take='{number}']"
    heard, rate = soundfile.read(
        io.BytesIO(saved(page, f"{take} >> text=Download WAV")), dtype="float32"
    )
    assert rate == 24000
    assert np.array_equal(heard, wanted)
    heard, rate = soundfile.read(io.BytesIO(saved(page, f"{take} >> text=Download MP3")))
    assert len(heard) / rate == pytest.approx(len(wanted) / 24000, abs=0.15)
    page.route("**/audio?response_format=mp3", lambda route: route.fulfill(status=404, json={}))
    page.press(f"{take} >> text=Download MP3", "Enter")
    assert "Download it as WAV" in page.wait_for_selector(".request > .refusal").text_content()
    studio.errors.clear()  # the browser notes the 404


def test_all_takes_are_one_zip_of_their_sounds_and_reports(studio, server) -> None:
    for seed in (1, 2):
        studio.request(input=TEXT, seed=seed)
        studio.speak()
    content = saved(studio.page, "text=Download all (ZIP)")
    with zipfile.ZipFile(io.BytesIO(content)) as file:
        assert file.testzip() is None
        assert sorted(file.namelist()) == [
            f"take-{number}.{kind}" for number in (1, 2) for kind in ("json", "wav")
        ]
        for number in (1, 2):
            report = json.loads(file.read(f"take-{number}.json"))
            heard, _ = soundfile.read(io.BytesIO(file.read(f"take-{number}.wav")), dtype="float32")
            assert report["request"]["params"]["seed"] == number
            assert np.array_equal(heard, sent(server, report["id"]))


# Copies of the newest take, as if it had been spoken so often.
MANY = """async (count) => {
  const opening = indexedDB.open("valle-serve.takes", 1);
  await new Promise((done) => { opening.onsuccess = done; });
  const store = opening.result.transaction("takes", "readwrite").objectStore("takes");
  const reading = store.getAll();
  await new Promise((done) => { reading.onsuccess = done; });
  const [take] = reading.result;
  for (let n = 1; n <= count; n++) {
    store.put({ ...take, key: `copy ${n}`, number: take.number + n, created: take.created + n });
  }
  await new Promise((done) => { store.transaction.oncomplete = done; });
  opening.result.close();
}"""


def test_the_page_says_which_takes_it_does_not_keep_and_a_star_keeps_one(studio) -> None:
    page = studio.page
    studio.speak()
    page.wait_for_timeout(500)
    page.evaluate(MANY, 24)
    page.reload()
    page.wait_for_selector("[data-take='25'] [data-curve]")
    assert studio.speak() == 26
    note = page.wait_for_selector(".note:text-matches('not kept')")
    assert note.text_content().startswith("2 older takes are not kept")
    page.press("[aria-label='Keep take 1']", "Enter")
    page.wait_for_selector(".note:text-matches('1 older take is not kept')")
    assert page.get_attribute("[aria-label='Keep take 1']", "aria-pressed") == "true"
    page.reload()
    page.wait_for_selector("[data-take='26'] [data-curve]")
    assert studio.numbers() == [*range(26, 2, -1), 1]


def test_takes_survive_a_reload_and_a_deleted_one_comes_back(studio) -> None:
    page = studio.page
    studio.speak()
    seconds = page.text_content("[data-take='1'] .facts span").strip()
    for undo in (True, False):
        page.wait_for_timeout(500)
        page.press("[data-take='1'] >> text=Delete", "Enter")
        page.wait_for_selector("[data-take='1']", state="detached")
        page.wait_for_selector("text=Take 1 deleted")
        if undo:
            page.keyboard.press("Enter")  # where the focus is now: Undo
            page.wait_for_selector("[data-take='1'] [data-curve]")
        page.wait_for_timeout(500)
        page.reload()
        if undo:
            page.wait_for_selector("[data-take='1'] [data-curve]")
            assert page.text_content("[data-take='1'] .facts span").strip() == seconds
            page.click("[data-take='1'] .play")
            assert page.evaluate("scheduled.length") == 1
    page.wait_for_selector("text=No takes yet")


# Within the page: on a slow machine a recording is over before a second press.
PLAY_AND_STOP = """async () => {
  const button = document.querySelector("[data-voice=george] .play");
  const shows = (word) => button.getAttribute("aria-label").startsWith(word);
  const until = async (word) => {
    while (!shows(word)) await new Promise((done) => setTimeout(done, 5));
  };
  button.click();
  await until("Pause");
  button.click();
  await new Promise((done) => setTimeout(done, 50));
  return button.getAttribute("aria-label");
}"""


def test_every_voice_says_who_it_is_and_can_be_heard_before_it_is_chosen(studio, server) -> None:
    page = studio.page
    chips = page.locator(".chip")
    told = [text.strip() for text in page.locator(".chip label").all_text_contents()]
    assert told[0] == "Heart American woman"  # the default
    assert "George British man" in told
    voices = server.get("/v1/audio/voices").json()["voices"]
    assert len(told) == len([one for one in voices if one["alias_of"] is None])
    for n in range(chips.count()):  # nothing is cut
        cut = "label => label.scrollWidth > label.clientWidth"
        assert not chips.nth(n).locator("label").evaluate(cut), told[n]
    page.press("[data-voice=george] .play", "Enter")
    page.wait_for_selector("[aria-label='Pause a recording of George']")
    assert studio.voice() == "heart"
    recording = server.get("/v1/audio/voices/george/audio").content
    samples, rate = soundfile.read(io.BytesIO(recording))
    (part,) = page.evaluate("scheduled")
    assert len(part["samples"]) / part["rate"] == pytest.approx(len(samples) / rate, abs=0.01)
    page.wait_for_selector("[aria-label='Play a recording of George']")  # it has ended
    assert page.evaluate(PLAY_AND_STOP) == "Play a recording of George"
    page.focus("[data-voice=heart] input")
    page.keyboard.press("ArrowRight")  # the voices are one stop of the Tab key
    assert studio.voice() == told[1].split()[0].lower()
    page.keyboard.press("ArrowLeft")
    assert studio.voice() == "heart"


# A file dropped on the page, as a person does it with the mouse.
DROP = """(bytes) => {
  const data = new DataTransfer();
  data.items.add(new File([new Uint8Array(bytes)], "My Aunt.flac", { type: "audio/flac" }));
  const event = new DragEvent("drop", { dataTransfer: data, bubbles: true, cancelable: true });
  document.querySelector("main").dispatchEvent(event);
}"""


def test_a_recording_dropped_on_the_page_becomes_a_voice(studio, server) -> None:
    page = studio.page
    page.evaluate(DROP, list(Path("weights/voices/bella.flac").read_bytes()))
    page.wait_for_selector("dialog audio")
    assert page.input_value("dialog [name=name]") == "My Aunt"
    assert "my-aunt" in page.text_content("#voice-id")
    page.check("dialog [name=consent]")
    page.press("text=Add the voice", "Enter")
    page.wait_for_selector("dialog", state="detached")
    assert studio.voice() == "my-aunt"
    assert page.text_content("[data-voice=my-aunt] b") == "My Aunt"
    assert page.text_content("[data-voice=my-aunt] small") == "yours"
    server.delete("/v1/audio/voices/my-aunt").raise_for_status()


@pytest.mark.parametrize("finish", ["stop", "length", "stuck", "empty"])
def test_a_take_that_failed_says_so_in_red_with_a_cure(studio, finish) -> None:
    def end_otherwise(route: Any) -> None:
        report = route.fetch().json()
        route.fulfill(json=report | {"finish_reason": finish})

    page = studio.page
    page.route(re.compile(r"/v1/audio/speech/[^/]+$"), end_otherwise)
    studio.press_speak()
    take = f"[data-take='1'][data-finish={finish}]"
    page.wait_for_selector(take)
    cure = page.query_selector(f"{take} .cure")
    assert (cure is not None) == (page.query_selector(f"{take} .badge") is not None)
    if finish == "stop":
        assert cure is None
        assert page.text_content(f"{take} .outcome") == "complete"
    else:
        assert "seed" in cure.text_content()
        red, green, blue = map(
            int, re.findall(r"\d+", cure.evaluate("e => getComputedStyle(e).color"))
        )
        assert red > 2 * max(green, blue)


def test_the_page_survives_a_restart_of_the_service(browser) -> None:
    context = browser.new_context()
    with served(create_app(Settings(), fake_engine())) as client:
        address = str(client.base_url).rstrip("/")
        port = client.base_url.port or 0
        studio = Studio(context.new_page(), address)
        page = studio.page
        page.route("**/studio/live.js*", lambda route: route.abort())  # a part that does not come
        studio.open()
        page.evaluate("window.sameDocument = true")
        page.click("#tab-live")
    page.press("button.speak", "Enter")
    banner = page.wait_for_selector(".banner")
    assert (
        banner.text_content() == f"The service at 127.0.0.1:{port} does not answer. Trying again."
    )
    assert "Try again" in page.text_content(".request > .refusal")
    page.unroute("**/studio/live.js*")
    with served(create_app(Settings(), fake_engine()), port=port):
        page.wait_for_selector(".banner", state="detached")
        page.click("#tab-live")
        page.wait_for_selector("#live")  # fetched at last, without a reload
        page.click("#tab-takes")
        assert studio.speak() == 1
        assert page.evaluate("sameDocument")
        context.close()


# Notes what each plot is made of, before it is drawn.
PLOTS = """
let made;
window.plots = [];
Object.defineProperty(window, "uPlot", {
  get: () => made,
  set: (real) => {
    made = Object.assign(function (options, ...rest) {
      plots.push(options);
      return new real(options, ...rest);
    }, { rangeNum: real.rangeNum, rangeLog: real.rangeLog });
  },
  configurable: true,
});
"""
RANGES = """() => plots.map(({ scales }) =>
  Object.fromEntries(Object.entries(scales).map(([name, { range }]) => [name, range])))"""


def test_a_and_b_have_one_scale_and_their_difference_is_drawn(browser, server) -> None:
    with visiting(browser, server) as studio:
        page = studio.page
        page.add_init_script(PLOTS)
        studio.open()
        two_takes(studio)
        page.click(".compare >> text=Close")
        page.evaluate("plots.length = 0")
        for number, side in ((1, "a"), (2, "b")):
            page.press(f"[data-take='{number}'] .side.{side}", "Enter")
        page.wait_for_selector("[data-side=b] [data-curve='kept codes']")
        page.wait_for_selector("[data-curve='difference 2']")
        plots = page.evaluate(RANGES)
    for name in ("entropy_bits", "temperature", "stop_probability", "stop_rank", "kept"):
        shared, *difference = dict.fromkeys(tuple(one[name]) for one in plots if name in one)
        assert len(difference) == (name in {"entropy_bits", "temperature"}), name
        if name == "temperature":
            assert shared[0] < 0.7 < 0.9 < shared[1]
            assert difference[0][0] < 0.2 < difference[0][1]


# Half-way from one colour to another, a contrast is neither's.
TRANSITIONS_END = """
() => Promise.all(document.getAnimations()
  .filter((one) => one.effect.getComputedTiming().iterations !== Infinity)
  .map((one) => one.finished.catch(() => null)))
"""


@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (1400, "dark")])
def test_axe_finds_nothing(browser, server, width, scheme) -> None:
    """Among the rest: all text has the contrast of WCAG 2 AA, and what can be pressed a name."""
    found: dict[str, list[str]] = {}
    with visiting(browser, server, width=width, color_scheme=scheme) as studio:
        page = studio.page
        studio.open({"input": f"{TEXT} [pause:0.2s]", "repetition_penalty": 1.2, "top_p": 0.9})

        def look(place: str, looked_at: Sequence[str] = (".request",)) -> None:
            page.evaluate("document.activeElement.blur()")
            page.evaluate(TRANSITIONS_END)
            results = Axe().run(page, {"exclude": [[one] for one in looked_at]}).response
            bad = [f"{one['id']}: {one['nodes'][0]['html'][:120]}" for one in results["violations"]]
            if bad:
                found[place] = bad

        look("no take", ())
        studio.speak()
        page.wait_for_selector("[data-take='1'] [data-curve]")
        look("take", ())
        page.click("details.group >> nth=2")
        page.click("[aria-label='About top_p']")
        look("knobs", ())
        page.click("[data-take='1'] >> text=Export")
        look("export")
        page.keyboard.press("Escape")
        page.click("text=+ Clone")
        look("clone")
        page.keyboard.press("Escape")
        page.click("#tab-live")
        page.wait_for_selector("#live")
        look("live")
        page.click("#tab-study")
        page.fill("#seeds", "2")
        page.click(".study >> text=Run")
        page.wait_for_selector("table.made tbody tr >> nth=1")
        page.wait_for_selector(".study >> text=Run")
        look("study")
        page.click("#tab-takes")
        page.click("[data-take='2'] .side.a")
        page.click("[data-take='3'] .side.b")
        page.wait_for_selector("[data-curve='difference 2']")
        look("compare")
        page.click("text=Blind test")
        look("blind")
        studio.write("It is still speaking when this is looked at. " * 40)
        studio.press_speak()
        page.wait_for_selector(".speak.stop")
        look("while it speaks")
        assert page.is_visible(".speak.stop")
    assert found == {}
