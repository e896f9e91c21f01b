"""The left side: a control of every knob, what they send, and refusals in their place."""

import re
from typing import Any

import httpx
import pytest

from app.api.schemas import TtsRequest
from tests.browser.conftest import TEXT, Studio

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.weights]


def knobs_of(server: httpx.Client) -> dict[str, dict[str, Any]]:
    """Every property of a request that the document gives hints for a control of."""
    document = server.get("/openapi.json").json()
    schema = document["paths"]["/tts"]["post"]["requestBody"]["content"]["application/json"][
        "schema"
    ]
    return {name: shown for name, shown in schema["properties"].items() if "x-ui" in shown}


def body_of(studio: Studio) -> dict[str, Any]:
    """The request as the page would send it: it sends it, and is answered nothing."""
    sent: list[dict[str, Any]] = []

    def refuse(route: Any) -> None:
        sent.append(route.request.post_data_json)
        error = {"message": "not now", "type": "server_error", "param": None, "code": None}
        route.fulfill(status=503, json={"error": error})

    studio.page.route("**/tts", refuse)
    studio.press_speak()
    studio.page.wait_for_selector("text=not now")
    studio.page.unroute("**/tts")
    studio.errors.clear()  # the browser notes the 503
    assert len(sent) == 1
    return sent[0]


def test_every_knob_of_the_schema_has_a_control_with_its_help_and_unit(studio, server) -> None:
    knobs = knobs_of(server)
    assert len(knobs) > 100
    for group in studio.page.query_selector_all("details.group > summary"):
        group.click()
    for name, shown in knobs.items():
        control = studio.page.query_selector(f"[data-knob='{name}']")
        assert control is not None, name
        field = control.query_selector("input, select")
        assert field is not None, name
        if name == "preset":
            continue
        assert plain(control.text_content()).find(plain(shown["description"])) >= 0, name
        assert shown["x-ui"].get("unit", "") in control.text_content(), name
        if shown["x-ui"].keys() & {"off", "label"} == {"off"} and shown.get("type") != "boolean":
            assert control.query_selector("[role=switch]") is not None, name
        label = studio.page.get_by_label(shown["x-ui"].get("label", name), exact=True)
        assert label.count() == 1, name


def plain(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip()


def test_nothing_moves_when_the_words_of_a_text_come(studio) -> None:
    page = studio.page
    held: list[Any] = []
    page.route("**/v1/audio/phonemes", lambda route: held.append(route))
    before = page.query_selector("button.speak").bounding_box()
    page.fill("#text", "The birch canoe slid on the smooth planks. " * 8)
    while not held:
        page.wait_for_timeout(20)
    assert page.query_selector("button.speak").bounding_box() == before
    held[0].continue_()
    page.wait_for_selector(".reading li:has-text('birch')")
    assert page.query_selector("button.speak").bounding_box() == before


def wait_for_reading(studio: Studio, wanted: list[str], part: str = ".said") -> None:
    studio.page.wait_for_function(
        "([part, wanted]) => JSON.stringify([...document.querySelectorAll(`.reading li ${part}`)]"
        ".map(one => one.textContent)) === JSON.stringify(wanted)",
        arg=[part, wanted],
    )


def test_under_a_text_are_its_words_written_out_and_behind_a_switch_its_phonemes(
    studio, server
) -> None:
    for text in (
        "It costs $5. Dr. Smith agrees!",
        "On May 3rd at 5:30 p.m.",
        "One [[wʌn]] two. [pause:0.3s] <sub alias='three'>3</sub> four.",
        "[voice:bella] Hello. [voice:puck] Goodbye.",
    ):
        told = server.post("/v1/audio/phonemes", json={"input": text}).json()["utterances"]
        studio.write(text)
        wait_for_reading(studio, [one["text"] for one in told])
    assert studio.page.query_selector(".ipa") is None
    studio.page.check(".reading [role=switch]")
    wait_for_reading(studio, [one["phonemes"] for one in told], ".ipa")
    studio.page.reload()  # which keeps text and switch
    wait_for_reading(studio, [one["phonemes"] for one in told], ".ipa")


def test_words_are_written_out_as_the_request_has_them_pronounced(studio) -> None:
    studio.open({"input": "I like SQL.", "pronunciations": {"SQL": "sequel"}})
    wait_for_reading(studio, ["I like sequel."])


def test_the_phonemes_shown_are_spoken_and_beside_them_is_what_the_markup_asks_for(studio) -> None:
    studio.page.check(".reading [role=switch]")
    studio.write("One. [voice:bella] Two. [pause:0.4s] <prosody rate='80%'>Three.</prosody> Four.")
    studio.page.wait_for_selector(".reading li:has-text('Four')")
    beside = [
        one.locator("small").all_text_contents() for one in studio.page.locator(".reading li").all()
    ]
    assert beside == [[], ["bella · pause 0.4 s"], ["bella · 0.8\u00d7"], ["bella"]]
    shown = studio.page.locator(".reading .ipa").all_text_contents()
    report = studio.report(studio.speak())
    assert [one["phonemes"] for one in report["utterances"]] == shown


def test_a_text_that_cannot_be_read_has_no_words_and_an_older_answer_does_not_come_back(
    studio,
) -> None:
    page = studio.page
    held: list[Any] = []

    def hold_the_first(route: Any) -> None:
        if held:
            route.continue_()
        else:
            held.append(route)

    page.route("**/v1/audio/phonemes", hold_the_first)
    studio.write("An old text.")
    while not held:
        page.wait_for_timeout(20)
    studio.write("A new text.")
    wait_for_reading(studio, ["A new text."])
    held[0].fulfill(json={"utterances": [{"text": "old", "phonemes": "old"}]})
    page.wait_for_timeout(200)
    wait_for_reading(studio, ["A new text."])
    for refused in ("[pause:soon]", "<prosody pitch='low'>Low.</prosody>", "..."):
        studio.write("A new text.")
        wait_for_reading(studio, ["A new text."])
        studio.write(refused)
        wait_for_reading(studio, [])
    studio.errors.clear()  # the browser notes each 422
    studio.write("")
    wait_for_reading(studio, [])


def test_a_knob_shows_what_the_preset_sets(studio, server) -> None:
    presets = {one["id"]: one["knobs"] for one in server.get("/v1/presets").json()["presets"]}
    studio.page.fill("#search", "temperature")
    for preset in ("auto", "greedy", "expressive"):
        studio.page.select_option("#knob-preset", preset)
        shown = float(studio.page.input_value("#knob-temperature"))
        assert shown == presets[preset]["temperature"], preset
    assert body_of(studio)["preset"] == "expressive"


def test_what_is_changed_is_sent_and_comes_first(studio) -> None:
    page = studio.page
    wanted = {
        "top_p": 0.75,
        "length_penalty": -0.5,  # without a range that acts gradually: a field alone
        "sampler_order": "hf",
        "ban_tokens": [3, 5],
        "seed": 2**63 - 1,
    }
    for knob, value in wanted.items():
        studio.set(knob, str(value))
    assert page.query_selector("[data-knob=length_penalty] [type=range]") is None
    page.fill("#search", "ras")
    page.check("#knob-ras")
    page.fill("#search", "min_p")
    page.focus("[aria-label='min_p, slider']")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    page.fill("#search", "")
    wanted |= {"ras": True, "min_p": pytest.approx(0.02)}
    first = [one.get_attribute("data-knob") for one in page.query_selector_all(".knob.changed")]
    assert set(first) == wanted.keys()
    body = body_of(studio)
    assert {name: body[name] for name in first} == wanted
    TtsRequest.model_validate({name: value for name, value in body.items() if name != "ban_tokens"})
    page.click("[aria-label='Reset ras']")
    assert "ras" not in body_of(studio)
    page.click("text=Reset all")
    assert not set(wanted) & set(body_of(studio))


def test_a_switch_turns_a_knob_off_and_on_again(studio, server) -> None:
    off = knobs_of(server)["top_p"]["x-ui"]["off"]
    page = studio.page
    page.fill("#search", "top_p")
    page.uncheck("[data-knob=top_p] [role=switch]")
    assert body_of(studio)["top_p"] == off
    page.check("[data-knob=top_p] [role=switch]")
    assert body_of(studio).get("top_p") != off


def test_a_refused_value_is_told_at_its_knob(studio) -> None:
    page = studio.page
    studio.set("temperature", "-7")
    page.click("button.speak")
    told = page.wait_for_selector("[data-knob=temperature] .refusal")
    assert "greater than or equal to -1" in told.text_content()
    assert page.get_attribute("#knob-temperature", "aria-invalid") == "true"
    page.wait_for_function("() => document.activeElement.id === 'knob-temperature'")
    studio.errors.clear()  # the browser notes the 422
    page.fill("#knob-temperature", "0.8")
    assert page.query_selector("[data-knob=temperature] .refusal") is None


def test_two_refused_values_are_told_at_both_knobs_in_closed_groups(studio) -> None:
    studio.request(input=TEXT, top_p=4, xtc_threshold=0)
    studio.page.click("button.speak")
    assert studio.page.wait_for_selector("[data-knob=top_p] .refusal")
    assert studio.page.wait_for_selector("[data-knob=xtc_threshold] .refusal")
    studio.errors.clear()


def test_conflicting_knobs_and_an_unknown_voice_are_told_in_their_place(studio) -> None:
    studio.request(input=TEXT, voice="nobody")
    studio.page.click("button.speak")
    told = studio.page.wait_for_selector("#refused-voice")
    assert "nobody" in told.text_content()
    studio.errors.clear()
    studio.request(input="")
    studio.page.click("button.speak")
    assert studio.page.wait_for_selector("#refused-input, .request > .refusal")
    studio.errors.clear()


def test_a_link_holds_the_whole_request(studio, browser) -> None:
    body = {
        "input": "Naïve [pause:0.2s] “quotes” & #hash 100%.",
        "voice": "bella",
        "preset": "stable",
        "temperature": 0.65,
        "ban_sequences": [{"codes": [1, 2], "strength": 3.5}],
        "seed": 2**63 - 1,
        "speed": 1.25,
    }
    studio.open(body)
    studio.page.click(".request >> text=Export")
    link = studio.page.text_content("[data-way=Link] pre")
    context = browser.new_context()
    other = Studio(context.new_page(), studio.address)
    other.page.goto(link)
    other.page.wait_for_selector("#knob-preset >> text=stable", state="attached")
    assert other.page.input_value("#text") == body["input"]
    other.page.wait_for_selector(".chip.chosen[data-voice=bella]")
    sent = body_of(other)
    context.close()
    assert {name: sent[name] for name in body} == body


def test_markup_is_coloured(studio) -> None:
    studio.write("One [[wʌn]] two [pause:1s] <break/> three [not markup].")
    marks = [one.text_content() for one in studio.page.query_selector_all(".box mark")]
    assert marks == ["[[wʌn]]", "[pause:1s]", "<break/>"]


@pytest.mark.parametrize(
    ("knob", "value", "set_to"),
    [
        ("mirostat_tau", 1.0, {"mirostat_mode": 1}),
        ("entropix_pause_end", 3, {"entropix_action": "pause", "entropix": True}),
    ],
)
def test_a_knob_that_lacks_another_says_so_and_a_button_sets_it(
    studio, knob, value, set_to
) -> None:
    studio.open({"input": TEXT, knob: value})
    note = f"[data-knob={knob}] .idle"
    assert next(iter(set_to)) in studio.page.wait_for_selector(note).text_content()
    studio.page.click(f"{note} button")
    studio.page.wait_for_selector(note, state="detached")
    sent = body_of(studio)
    assert {name: sent[name] for name in (knob, *set_to)} == {knob: value} | set_to
