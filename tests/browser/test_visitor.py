"""The page for who comes for the first time, on a phone, or again: what it keeps and says."""

import json
import re
from itertools import pairwise
from typing import Any

import pytest

from tests.browser.conftest import TEXT, visiting
from tests.browser.test_takes import two_takes

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.weights]

OWN = "My own paragraph that I typed for an hour."


def test_before_speak_less_than_150_kb_are_on_the_wire_and_all_text_is_compressed(
    browser, server
) -> None:
    context = browser.new_context()
    page = context.new_page()
    wire = context.new_cdp_session(page)
    wire.send("Network.enable")
    sizes: list[float] = []
    plain: list[str] = []
    wire.on("Network.loadingFinished", lambda told: sizes.append(told["encodedDataLength"]))

    def note(answer: Any) -> None:
        long = int(answer.headers.get("content-length", "0")) > 2000
        if long and answer.headers.get("content-encoding") != "gzip":
            plain.append(answer.url)

    page.on("response", note)
    page.goto(str(server.base_url))
    page.wait_for_selector("button.speak:enabled")
    before_bytes = sum(sizes)
    page.wait_for_selector(".chip >> nth=1")
    page.wait_for_load_state("networkidle")
    context.close()
    assert 30_000 < before_bytes < 150_000
    assert plain == []


def test_a_draft_survives_a_reload_and_a_closed_tab(studio) -> None:
    page = studio.page
    studio.write(OWN)
    page.click("[data-voice=emma] label")
    page.fill("#knob-speed", "1.3")
    studio.set("top_p", "0.8")
    page.fill("#knob-seed", str(2**63 - 1))
    page.click("#tab-study")
    page.select_option("#knob-0", "min_p")
    page.fill("#values-0", "0, 0.3")
    page.click("#tab-live")
    for again in ("reload", "new tab"):
        if again == "reload":
            page.reload()
        else:
            page = page.context.new_page()
            page.goto(studio.address)
        page.wait_for_selector(".chip.chosen[data-voice=emma]")
        assert page.input_value("#text") == OWN, again
        page.fill("#search", "")
        kept = ("speed", "top_p", "seed")
        shown = [page.input_value(f"#knob-{name}") for name in kept]
        assert shown == ["1.3", "0.8", str(2**63 - 1)], again
        assert page.get_attribute("#tab-live", "aria-current") == "page", again
        page.click("#tab-study")
        assert page.input_value("#values-0") == "0, 0.3", again
        page.click("#tab-live")


def test_a_link_goes_before_the_draft_and_what_is_changed_then_survives_a_reload(studio) -> None:
    page = studio.page
    studio.write(OWN)
    studio.open({"input": "A text of a link.", "top_p": 0.7})
    assert page.input_value("#text") == "A text of a link."
    studio.write("A text of a link, changed.")
    page.reload()
    page.wait_for_selector(".chip >> nth=1")
    assert page.input_value("#text") == "A text of a link, changed."
    studio.open({"input": "A text of a link.", "top_p": 0.7})  # the link itself, again
    assert page.input_value("#text") == "A text of a link."


def test_a_text_that_was_not_sent_live_survives_a_reload(studio) -> None:
    page = studio.page
    studio.set("temperature", "-7")  # refused: nothing is sent
    page.click("#tab-live")
    page.fill("#live", OWN)
    page.wait_for_selector(".live .refusal")
    page.reload()
    page.wait_for_selector("#live")
    assert page.input_value("#live") == OWN


@pytest.mark.parametrize("by", ["example", "settings of a take", "reset", "link"])
def test_what_replaces_a_text_or_settings_can_be_undone(studio, by) -> None:
    page = studio.page
    if by == "settings of a take":
        studio.write(TEXT)
        studio.speak()
    studio.write(OWN)
    studio.set("top_p", "0.8")
    match by:
        case "example":
            page.click(".examples >> text=A story")
        case "settings of a take":
            page.click("[data-take='1'] >> text=Use these settings")
        case "reset":
            page.click("text=Reset all")
        case _:
            studio.request(input=TEXT)
    page.click(".undo >> text=Undo")
    page.fill("#search", "top_p")
    assert (page.input_value("#text"), page.input_value("#knob-top_p")) == (OWN, "0.8")
    assert page.query_selector(".undo") is None


def test_an_example_replaces_another_without_a_word(browser, server) -> None:
    with visiting(browser, server) as studio:
        studio.open()  # with the first example
        for name in ("A story", "A question"):
            studio.page.click(f".examples >> text={name}")
        assert studio.page.query_selector(".undo") is None


@pytest.mark.parametrize("width", [390, 1400])
def test_after_speak_a_row_is_there_at_once_with_a_clock_and_the_expected_wait(
    browser, server, width
) -> None:
    with visiting(browser, server, width=width, has_touch=width < 1000) as studio:
        page = studio.page
        studio.open()
        held: list[Any] = []
        page.route("**/tts", lambda route: held.append(route))
        health = server.get("/health").json()
        page.route("**/health", lambda route: route.fulfill(json=health | {"first_audio_s": 7}))
        studio.press_speak()
        row = page.locator("[data-take='1']")
        row.locator("text=expected after about 7 s").wait_for()
        clock = row.get_by_role("timer")
        first = clock.text_content()
        page.wait_for_function(
            "first => document.querySelector('[role=timer]').textContent !== first", arg=first
        )
        assert re.fullmatch(r"\d+\.\d s", clock.text_content())
        assert studio.told() == "Take 1: the first sound in about 7 s"
        page.wait_for_timeout(600)  # it scrolls smoothly
        box = row.bounding_box()
        assert 0 <= box["y"] < 844 - box["height"]
        held[0].continue_()
        studio.wait_for(1)
        assert page.query_selector("[role=timer]") is None


def test_a_take_can_be_stopped_before_its_first_sound_and_the_next_is_spoken(studio) -> None:
    page = studio.page
    page.route("**/tts", lambda _: None)
    studio.press_speak()
    page.click("[data-take='1'] >> text=Stop")
    page.wait_for_selector("[data-take='1'][data-outcome=cancelled]")
    assert studio.told() == "Take 1: stopped"
    page.unroute("**/tts")
    assert studio.speak() == 2


def test_a_refused_take_leaves_no_row(studio) -> None:
    studio.set("temperature", "-7")
    studio.press_speak()
    studio.page.wait_for_selector("[data-knob=temperature] .refusal")
    assert studio.numbers() == []
    studio.errors.clear()  # the browser notes the 422


FOUND = [
    ("repetition_penalty", "repetition_penalty"),
    ("repeat", "repetition_penalty"),
    ("stutter", "repetition_penalty"),
    ("min-p", "min_p"),
    ("min p", "min_p"),
    ("MIN_P", "min_p"),
    ("top k", "top_k"),
    ("nucleus", "top_p"),
    ("volume", "loudness_lufs"),
    ("louder", "loudness_lufs"),
    ("hallucinations", "backtrack"),
    ("stuck", "backtrack"),
    ("best", "best_of"),
    ("longer", "length_penalty"),
    ("mirostat", "mirostat_mode"),
    ("repitition", "repetition_penalty"),
    ("min frames please", "min_frames"),
]
ABOVE = [
    ("faster", "Speed"),
    ("slower", "Speed"),
    ("creative", "Liveliness"),
    ("randomness", "Liveliness"),
    ("expressive", "Liveliness"),
    ("temprature", "Liveliness"),
    ("silences", "Pauses"),
    ("reproducible", "Seed"),
    ("skipped words", "Closeness to the text"),
]
ANSWERED = [
    "emotion",
    "sad",
    "quality",
    "pitch",
    "deeper",
    "accents",
    "singing",
    "pronounce",
    "mp3",
]


def test_a_search_ranks_names_first_and_knows_common_words(studio) -> None:
    page = studio.page
    wrong: dict[str, Any] = {}
    shown = "h2[aria-live] ~ .knob"
    for query, name in FOUND:
        page.fill("#search", query)
        first = page.locator(shown).first.get_attribute("data-knob")
        if first != name:
            wrong[query] = first
    for query, label in ABOVE:
        page.fill("#search", query)
        told = page.text_content(".knobs h2[aria-live]")
        if f"{label} (" not in told.partition("above: ")[2]:
            wrong[query] = told
    for query in ANSWERED:
        page.fill("#search", query)
        if page.locator(".answer").count() != 1:
            wrong[query] = page.locator(".answer").all_text_contents()
    page.fill("#search", "xyzzy")
    if "Try a word such as" not in page.text_content(".answer"):
        wrong["xyzzy"] = page.text_content(".answer")
    assert wrong == {}


def test_curves_are_folded_at_first_sight_and_stay_as_they_were_left(browser, server) -> None:
    with visiting(browser, server, first_visit=True) as studio:
        page = studio.page
        studio.open()
        studio.wait_for(1)
        page.wait_for_selector("[data-take='1'] .words span")
        lanes = page.locator("[data-take='1'] .lanes canvas")
        assert [lanes.nth(n).get_attribute("aria-label")[:8] for n in range(lanes.count())] == [
            "Waveform"
        ]
        assert page.query_selector("[data-curve], .token, [data-marker]") is None
        page.click("text=What the model did")
        page.wait_for_selector("[data-curve]")
        page.reload()
        page.wait_for_selector("[data-curve]")


# The cards that are there, with the buttons in them that are filled with the colour of the first.
PRIMARIES = """() => {
  const speak = document.createElement("button");
  document.body.append(speak);
  const primary = getComputedStyle(speak).backgroundColor;
  speak.remove();
  return [...document.querySelectorAll(".request, .take, .compare, .live, .study, dialog form")]
    .map((card) => [...card.querySelectorAll("button")].filter((one) =>
      one.offsetParent && getComputedStyle(one).backgroundColor === primary)
      .map((one) => one.textContent));
}"""
# What can be pressed and is smaller than 24 pixels; a link or button within a sentence may be.
SMALL = """() => [...document.querySelectorAll(
    "button, summary, select, a, input, [role=slider]")]
  .filter((one) => one.offsetParent && getComputedStyle(one).pointerEvents !== "none")
  .map((one) => [one, one.getBoundingClientRect()])
  .filter(([one, { width, height }]) => Math.min(width, height) < 23.9)
  .map(([one, { width, height }]) => `${one.outerHTML.slice(0, 90)} ${width} x ${height}`)"""


@pytest.mark.parametrize("width", [390, 1400])
def test_a_card_has_one_primary_button_and_all_targets_are_24_pixels(
    browser, server, width
) -> None:
    small: set[str] = set()
    crowded: list[Any] = []
    with visiting(browser, server, width=width) as studio:
        page = studio.page

        def look() -> None:
            page.wait_for_timeout(300)
            small.update(page.evaluate(SMALL))
            crowded.extend(one for one in page.evaluate(PRIMARIES) if len(one) > 1)

        studio.open({"input": f"{TEXT} [pause:0.2s]", "mirostat_tau": 1.0})
        two_takes(studio)
        page.wait_for_selector("[data-curve='difference 2']")
        studio.set("top_p", "0.5")
        page.fill("#search", "")
        page.click("details.group >> nth=2")
        look()
        page.click("text=Blind test")
        look()
        page.click(".compare >> text=Close")
        page.click("[data-take='2'] .title")
        page.wait_for_selector("[data-take='2'] [data-curve]")
        look()
        page.click("#tab-live")
        page.fill("#live", "Hello there")
        page.wait_for_selector(".live >> text=Finish")
        look()
        page.click("text=Cancel")
        page.click("#tab-study")
        page.wait_for_selector(".study")
        look()
        page.click("text=+ Clone")
        page.wait_for_selector("dialog")
        look()
    assert sorted(small) == []
    assert crowded == []


# A line break beside a word is a space; between elements it is nothing.
BROKEN = """async () => {
  const { html } = await import("/studio/parts.js");
  const place = document.createElement("div");
  const [n, cond] = [30, "It"];
  preact.render(html`
    <p>the best
      ${n} s are ${cond}.
      ${cond} is
      <b>kept</b>
      for long</p>
    <i>a</i>
    <i>b</i>`, place);
  return place.textContent;
}"""


def test_a_line_break_in_a_sentence_of_the_page_is_a_space(studio) -> None:
    assert studio.page.evaluate(BROKEN) == "the best 30 s are It. It is kept for longab"


NAMES = {
    "Anna B": "anna-b",
    "Zoë Ångström": "zoe-angstrom",
    "Łukasz": "lukasz",
    "  My Aunt (2nd take)!  ": "my-aunt-2nd-take",
    "_x_": "x",
    "Анна": "voice-1",
    "李": "voice-1",
    "heart": "heart-2",
    "default": "default-2",
    "x" * 80: "x" * 64,
}


def test_any_name_of_a_voice_becomes_an_id_and_stays_its_title(studio, server) -> None:
    page = studio.page
    page.click("text=+ Clone")
    page.wait_for_selector("dialog [name=name]")
    assert page.evaluate("document.activeElement.name") == "name"
    told = {}
    for name in NAMES:
        page.fill("dialog [name=name]", name)
        code = page.query_selector("#voice-id code")
        told[name] = code.text_content() if code else name.strip()
    assert told == NAMES
    assert "the best 30 s are" in page.text_content("dialog form")
    assert "What it says (optional)" in page.text_content("dialog form")
    assert len(page.text_content("dialog blockquote").split()) > 20  # to read aloud
    page.set_input_files("dialog [name=file]", "weights/voices/bella.flac")
    page.fill("dialog [name=name]", "Анна & Zoë")
    page.check("dialog [name=consent]")
    page.press("text=Add the voice", "Enter")
    page.wait_for_selector("dialog", state="detached")
    try:
        voice = server.get(f"/v1/audio/voices/{studio.voice()}").json()
        assert (voice["id"], voice["name"]) == ("zoe", "Анна & Zoë")
    finally:
        server.delete(f"/v1/audio/voices/{studio.voice()}").raise_for_status()


def test_a_long_problem_is_short_first_and_whole_behind_a_word(studio) -> None:
    page = studio.page
    long = "input: it cannot be read: " + "a letter of another script, " * 20
    error = {"message": long, "type": "invalid_request_error", "param": "input", "code": None}
    page.route("**/tts", lambda route: route.fulfill(status=422, json={"error": error}))
    studio.press_speak()
    told = page.wait_for_selector("#refused-input")
    assert len(told.inner_text()) < 160
    page.click("#refused-input summary")
    assert long.removeprefix("input: ") in page.text_content("#refused-input details")
    studio.write("Привет, как дела?")
    studio.press_speak()
    page.wait_for_selector("#refused-input >> text=/^This voice reads English only/")
    studio.errors.clear()  # the browser notes the 422s


def test_the_figure_of_a_refused_knob_can_be_read(studio) -> None:
    page = studio.page
    studio.set("top_p", "4")
    studio.press_speak()
    page.wait_for_selector("[data-knob=top_p] .refusal")
    style = page.eval_on_selector("#knob-top_p", "e => getComputedStyle(e).backgroundImage")
    assert style == "none"
    studio.errors.clear()  # the browser notes the 422


def test_a_and_b_say_in_what_they_differ_and_a_flat_difference_has_a_small_axis(studio) -> None:
    page = studio.page
    two_takes(studio)
    sides = page.locator(".differs").all()
    told = [re.sub(r"\s+", " ", one.text_content()).strip() for one in sides]
    assert told == ["seed 1 temperature 0.7", "seed 2 temperature 0.9"]
    page.click(".compare >> text=Close")
    studio.request(input="One two three four five six.", seed=1)
    number = studio.speak()
    page.click("[data-take='1'] .side.a")
    page.click(f"[data-take='{number}'] .side.b")
    page.wait_for_selector("[data-curve='difference 2']")
    assert [one.text_content().strip() for one in sides] == ["the same request"] * 2


def test_the_ends_of_an_axis_have_a_flat_line_between_them(studio) -> None:
    """Within the page, as a canvas shows no figures."""
    studio.page.evaluate("localStorage.curves = 'open'")
    studio.request(input=TEXT, preset="default", temperature=0.7, seed=5)
    number = studio.speak()
    studio.page.wait_for_selector(f"[data-take='{number}'] [data-curve=temperature]")
    ends = "async values => (await import('/studio/curves.js')).rangeOf(...values)"
    assert studio.page.evaluate(ends, [0, 0]) == [-0.5, 0.5]
    assert studio.page.evaluate(ends, [200, 200]) == [180, 220]
    low, high = studio.page.evaluate(ends, [-1, 3])
    assert low <= -1 < 3 <= high <= 5


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ([2.14, 2.19], [0, 1, 2, 3]),
        ([0.31], [0, 0.1, 0.2, 0.3, 0.4]),
        ([-2.4, -1.9], [-3, -2, -1, 0]),
        ([-1, 4], [-2, 0, 2, 4]),
        ([0, 0], [0, 0.25, 0.5, 0.75, 1]),
        ([930], [0, 250, 500, 750, 1000]),
        ([0.0021], [0, 0.001, 0.002, 0.003]),
    ],
)
def test_the_axis_of_a_study_has_round_figures_from_zero_on(spoken, values, shown) -> None:
    figures = "async values => (await import('/studio/plot.js')).figures(values)"
    found = spoken.page.evaluate(figures, values)
    assert found == pytest.approx(shown)
    steps = [after - before for before, after in pairwise(found)]
    assert steps == pytest.approx([steps[0]] * len(steps))


def test_a_study_shows_intervals_and_what_the_last_value_changed(studio) -> None:
    page = studio.page
    studio.write(TEXT)
    page.click("#tab-study")
    assert "What does a knob do?" in page.text_content(".study")
    page.select_option("#knob-0", "temperature")
    page.fill("#values-0", "0.5, 1")
    page.fill("#seeds", "2")
    assert "4 takes" in page.text_content(".study .actions")
    page.press(".study >> text=Run", "Enter")
    page.locator("table.made tbody tr").nth(3).wait_for()
    page.wait_for_selector(".study >> text=Run")
    plot = page.locator("[data-plot=seconds]")
    assert plot.locator("circle").count() == 4
    assert plot.locator(".interval").count() == 2
    axis = plot.locator(".tick text").all_text_contents()
    assert axis[0] == "0"
    assert len(axis) > 2
    assert re.search(r"\[.?[\d.]+, .?[\d.]+ to .?[\d.]+", plot.text_content())


def test_every_page_has_an_icon(browser, server) -> None:
    with visiting(browser, server) as studio:
        for path in ("", "docs"):
            studio.page.goto(f"{studio.address}/{path}")
            icon = studio.page.get_attribute("link[rel~=icon]", "href")
            answer = server.get(f"/{icon}")
            assert answer.headers["content-type"] == "image/svg+xml"
        assert server.get("/favicon.ico").content == answer.content


def test_no_storage_no_draft_and_yet_it_speaks(browser, server) -> None:
    """As where cookies are blocked."""
    with visiting(browser, server) as studio:
        blocked = "Object.defineProperty(window, 'NAME', { get() { throw new Error('blocked'); } })"
        for name in ("localStorage", "sessionStorage"):
            studio.page.add_init_script(blocked.replace("NAME", name))
        studio.page.goto(studio.address)
        studio.page.wait_for_selector("button.speak:enabled")
        studio.write(OWN)
        assert json.loads(studio.page.evaluate("JSON.stringify(document.title)"))
        studio.page.wait_for_selector(".chip >> nth=1")
