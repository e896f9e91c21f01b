"""Live, study, export, voices, keys, other hosts, small screens, keyboard."""

import csv
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
import soundfile

from app.main import create_app
from app.settings import Settings
from tests.app.tools.serving import served
from tests.browser.conftest import HOST, TEXT, Studio, visiting
from tests.browser.test_takes import sent
from tests.fakes import fake_engine
from tests.toy.make_toy import make

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.weights]

KEY = "alice-0123456789"


def test_live_speaks_from_the_first_key_and_leaves_a_take(studio, server) -> None:
    page = studio.page
    page.click("#tab-live")
    page.type("#live", "Hello there. This is being typed.", delay=5)
    page.wait_for_selector(".meters >> text=/first sound \\d+ ms/")  # before the text has ended
    assert page.is_enabled(".live >> text=Finish")
    page.type("#live", " And this too.", delay=5)
    page.wait_for_selector(".meters >> text=/of 47 characters/")
    page.click(".live >> text=Finish")
    page.wait_for_selector("text=This is now take 1.")
    assert page.input_value("#live") == ""  # the next key begins another
    page.click("#tab-takes")
    studio.wait_for(1)
    report = studio.report(1)
    assert report["finish_reason"] == "stop"
    assert len(report["utterances"]) == 3
    played = np.concatenate([part["samples"] for part in page.evaluate("scheduled")])
    assert np.array_equal(played.astype(np.float32), sent(server, report["id"]))


def test_live_keeps_what_was_sent_and_can_be_cancelled(studio) -> None:
    page = studio.page
    page.click("#tab-live")
    page.fill("#live", "Words that were sent stay. " * 6)  # pasted, which begins, too
    page.wait_for_selector(".meters >> text=/first sound \\d+ ms/")
    typed = page.input_value("#live")
    page.fill("#live", "something else")
    assert page.input_value("#live") == typed
    page.click("text=Cancel")
    page.wait_for_selector("text=This is now take 1.")
    page.click("#tab-takes")
    page.wait_for_selector("[data-take='1'][data-outcome=cancelled]")


def test_live_that_is_refused_does_not_ask_again_at_every_key(studio) -> None:
    page = studio.page
    opened: list[str] = []
    page.on("websocket", lambda socket: opened.append(socket.url))
    studio.set("temperature", "-7")
    page.click("#tab-live")
    page.type("#live", "Hello ")
    page.wait_for_selector(".live .refusal")
    page.wait_for_timeout(100)
    page.keyboard.type("there, you.")  # the focus has stayed
    assert page.input_value("#live") == "Hello there, you."
    assert len(opened) == 1
    page.fill("#knob-temperature", "0.7")
    page.click("text=Speak this text")
    page.wait_for_selector(".meters >> text=/of 17 characters/")
    page.click(".live >> text=Finish")
    page.wait_for_selector("text=This is now take 1.")
    assert len(opened) == 2


def test_a_study_makes_takes_over_values_and_seeds_with_a_table_and_plots(studio, server) -> None:
    """A grid of two knobs and two seeds, asked for by keyboard alone; a value is refused."""
    page = studio.page
    hints = server.get("/openapi.json").json()["paths"]["/tts"]["post"]["requestBody"]["content"]
    knobs = hints["application/json"]["schema"]["properties"]
    studio.write(TEXT)
    page.press("#tab-study", "Enter")
    assert page.input_value("#seeds") == "8"  # which alone differ
    for name in ("top_p", "repetition_penalty"):
        page.select_option("#knob-0", name)
        shown = [float(value) for value in page.input_value("#values-0").split(", ")]
        assert shown == knobs[name]["x-ui"]["values"], name
    page.select_option("#knob-0", "dry_base")  # nothing is recommended: from end to end
    assert page.input_value("#values-0").startswith("1, ")
    page.focus("#knob-0")
    page.keyboard.type("top_p")
    page.keyboard.press("Tab")
    page.keyboard.type("0.2, 7, 0.9")
    page.keyboard.press("Tab")
    page.keyboard.type("temperature")
    page.keyboard.press("Tab")
    page.keyboard.type("0.5, 1")
    page.keyboard.press("Tab")
    page.keyboard.type("2")
    page.keyboard.press("Enter")
    rows = page.locator("table.made tbody tr")
    rows.nth(7).wait_for()
    page.wait_for_selector(".study >> text=Run")
    assert "top_p 7, temperature " in page.text_content(".study .refusal")
    studio.errors.clear()  # the browser notes the 422s
    cells = [f"{p} {t} {seed}" for p in (0.2, 0.9) for t in (0.5, 1) for seed in (1, 2)]
    assert [rows.nth(n).get_attribute("data-value") for n in range(8)] == cells
    plots = page.locator("[data-plot]")
    assert plots.count() == 5
    for n in range(5):
        assert plots.nth(n).locator("circle").count() == 8
        assert plots.nth(n).locator("polyline").count() == 2  # one a temperature
    with page.expect_download() as started:
        page.press("text=Download the table", "Enter")
    table = list(csv.reader(Path(started.value.path()).read_text().splitlines()))
    assert table[0][:5] == ["top_p", "temperature", "seed", "seconds", "repeats"]
    assert [" ".join(row[:3]) for row in table[1:]] == cells
    assert {row[table[0].index("rank")] for row in table[1:]} <= set("12345678")
    page.press("[aria-label='Play top_p 0.9, temperature 1, seed 2']", "Enter")
    assert page.wait_for_selector("[aria-label='Pause top_p 0.9, temperature 1, seed 2']")
    page.click("table.made >> text=take 8")
    assert "top_p 0.9" in page.text_content("[data-take='8'].open .title")
    assert page.wait_for_selector("[data-take='8'] [data-curve]")


def test_what_is_exported_gives_the_same_speech(studio, server, tmp_path: Path) -> None:
    page = studio.page
    studio.request(input='It\'s "so".', top_p=0.8, ras=True, sampler_order="hf", ban_tokens=[1, 2])
    number = studio.speak()
    report = studio.report(number)
    wanted = sent(server, report["id"])
    page.click(f"[data-take='{number}'] .actions >> text=Export")
    ways = {
        name: page.text_content(f"[data-way='{name}'] pre")
        for name in ("curl", "Python", "Command line")
    }
    for name, program in {"curl": ["bash", "-c"], "Python": [sys.executable, "-c"]}.items():
        folder = tmp_path / name
        folder.mkdir()
        subprocess.run([*program, ways[name]], cwd=folder, check=True, timeout=100)
        made, _ = soundfile.read(folder / "speech.wav", dtype="float32")
        assert np.array_equal(made, wanted), name
    _, *words = shlex.split(ways["Command line"])
    command = [sys.executable, "-m", "app", *words, "--url", studio.address]
    subprocess.run(command, check=True, timeout=100, capture_output=True, cwd=tmp_path)
    made, _ = soundfile.read(tmp_path / "speech.wav", dtype="float32")
    assert np.array_equal(made, wanted)


def test_a_voice_is_uploaded_and_used_and_a_recording_that_is_too_short_is_refused(
    studio, server, tmp_path: Path
) -> None:
    page = studio.page
    short = tmp_path / "short.wav"
    soundfile.write(short, np.zeros(2400), 24000)
    page.click("text=+ Clone")
    studio.add_voice("anna", short)
    assert page.wait_for_selector("dialog .refusal").text_content()
    studio.errors.clear()  # the browser notes the 422
    studio.add_voice("anna", Path("weights/voices/bella.flac"))
    page.wait_for_selector("dialog", state="detached")
    assert studio.voice() == "anna"
    studio.write(TEXT)
    assert studio.report(studio.speak())["request"]["voice"] == "anna"
    server.delete("/v1/audio/voices/anna").raise_for_status()


def test_a_voice_is_recorded_where_the_page_came_from_this_machine(studio, server) -> None:
    page = studio.page
    assert page.evaluate("isSecureContext") is True
    page.click("text=+ Clone")
    page.click("dialog >> button:text-is('Record')")
    page.wait_for_selector("text=Stop recording")
    page.wait_for_timeout(2500)
    page.click("text=Stop recording")
    page.wait_for_selector("dialog audio")
    studio.add_voice("beeps")
    page.wait_for_selector("dialog", state="detached")
    assert studio.voice() == "beeps"
    assert server.get("/v1/audio/voices/beeps").json()["audio_s"] > 1
    page.click("text=+ Clone")
    held: list[Any] = []

    def hold(route: Any) -> None:
        if route.request.method == "DELETE":
            held.append(route)
        else:
            route.continue_()

    page.route("**/v1/audio/voices/beeps", hold)
    page.click("[aria-label='Delete voice beeps']")
    while not held:
        page.wait_for_timeout(20)
    assert studio.voice() == "heart"  # before it is gone
    held[0].continue_()
    page.unroute("**/v1/audio/voices/beeps")
    page.wait_for_selector(".chip[data-voice=beeps]", state="detached")


def test_a_model_that_cannot_tell_words_speaks_all_the_same(browser, tmp_path: Path) -> None:
    app = create_app(Settings(model=str(make(tmp_path / "toy")), device="cpu"))
    with served(app) as client, visiting(browser, client) as studio:
        studio.open({"input": TEXT, "seed": 3})
        number = studio.speak()
        studio.page.wait_for_selector(f"[data-take='{number}'] [data-curve]")
        assert studio.report(number)["utterances"][0]["words"] is None
        assert studio.page.text_content(f"[data-take='{number}'] .words span")  # its phonemes


def test_a_key_is_asked_for_and_kept_in_the_tab(browser) -> None:
    with served(create_app(Settings(api_keys=f"alice:{KEY}"), fake_engine())) as client:
        context = browser.new_context()
        studio = Studio(context.new_page(), str(client.base_url).rstrip("/"))
        page = studio.page
        page.goto(studio.address)
        page.fill("#key", "wrong-key-0123456789")
        page.click("dialog >> text=Save")
        page.wait_for_selector("text=That key is not known here. It is kept")
        page.fill("#key", KEY)
        page.click("dialog >> text=Save")
        page.wait_for_selector("text=Forget key")
        page.wait_for_selector(".chip", state="attached")
        page.reload()
        page.wait_for_selector(".chip", state="attached")
        assert page.query_selector("#key") is None
        page.click("#tab-live")
        page.type("#live", "Hello")
        page.wait_for_selector("text=Cancel")
        page.wait_for_selector("text=Speak now")
        other = context.new_page()
        other.goto(studio.address)
        other.wait_for_selector("#key")  # another tab has none
        page.click("text=Forget key")
        page.reload()
        page.wait_for_selector("#key")
        context.close()


def test_all_of_it_works_on_a_host_name_that_is_no_secure_context(browser, server) -> None:
    address = f"http://{HOST}:{urlsplit(str(server.base_url)).port}"
    with visiting(browser, server, address=address) as studio:
        studio.open()
        assert studio.page.evaluate("isSecureContext") is False
        studio.write(TEXT)
        number = studio.speak()
        played = np.concatenate([part["samples"] for part in studio.page.evaluate("scheduled")])
        report = studio.report(number)
        assert np.array_equal(played.astype(np.float32), sent(server, report["id"]))
        studio.page.click(".request >> text=Export")
        studio.page.click("[aria-label='Copy curl']")
        studio.page.wait_for_selector("text=Copied")
        studio.page.keyboard.press("Escape")
        studio.page.click("text=+ Clone")
        assert studio.page.wait_for_selector("text=Recording here needs HTTPS")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_of_390_pixels_scrolls_in_one_direction(browser, server, scheme) -> None:
    with visiting(browser, server, width=390, has_touch=True, color_scheme=scheme) as studio:
        studio.open()
        studio.write(TEXT)
        number = studio.speak()
        page = studio.page
        page.wait_for_selector(f"[data-take='{number}'] [data-curve]")
        for tab in ("live", "study", "takes"):
            page.click(f"#tab-{tab}")
            page.wait_for_timeout(300)
            assert page.evaluate("document.documentElement.scrollWidth") <= 390, tab
        page.click("details.group >> nth=3")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        small = page.evaluate(
            "[...document.querySelectorAll('button, summary, select')].filter(one =>"
            " one.offsetParent &&"
            " one.getBoundingClientRect().height < 20).map(one => one.outerHTML.slice(0, 80))"
        )
        assert small == []
        page.tap(f"[data-take='{number}'] .play")


def test_a_keyboard_is_enough(studio) -> None:
    page = studio.page
    page.focus("#text")
    page.keyboard.press("Control+Enter")
    studio.wait_for(1)
    page.keyboard.press("Escape")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press(" ")
    assert page.wait_for_selector("[data-take='1'] .play[aria-label^=Pause]")
    page.keyboard.press(" ")
    assert page.wait_for_selector("[data-take='1'] .play[aria-label^=Play]")
    page.keyboard.press("/")
    assert page.evaluate("document.activeElement.id") == "search"
    page.focus("#tab-live")
    page.keyboard.press("Enter")
    assert page.get_attribute("#tab-live", "aria-current") == "page"
    page.press("#tab-takes", "Enter")
    assert re.search(r"Take 1: [\d.]+ seconds, done", studio.told())


def test_the_documentation_works_without_the_internet(browser, server) -> None:
    with visiting(browser, server) as studio:
        studio.page.goto(f"{studio.address}/docs")
        studio.page.wait_for_selector(".opblock-summary-path >> text=speech")


def test_loudness_is_that_of_the_recommendation(studio, server) -> None:
    pyloudnorm = pytest.importorskip("pyloudnorm")
    studio.write("Hello there. This is a test of how loud it is.")
    number = studio.speak()
    wanted = sent(server, studio.report(number)["id"])
    told = studio.page.locator(f"[data-take='{number}'] .facts span", has_text="LUFS")
    shown = float(told.text_content().split()[0])
    # pyloudnorm also counts a last block that is not whole, which BS.1770-4 leaves out.
    wanted = wanted[: len(wanted) // 2400 * 2400]
    assert shown == pytest.approx(pyloudnorm.Meter(24000).integrated_loudness(wanted), abs=0.15)


def test_requests_in_json_have_exact_seeds(studio) -> None:
    studio.request(input=TEXT, seed=2**63 - 1)
    report = studio.report(studio.speak())
    assert report["request"]["params"]["seed"] == 2**63 - 1
    assert json.dumps(report)
