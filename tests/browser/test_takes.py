"""Takes: what is played, what is drawn, A and B, going on, and what a reload leaves."""

import json
import math
from collections.abc import Iterator
from itertools import pairwise
from typing import Any
from urllib.parse import unquote

import httpx
import numpy as np
import pytest

from tests.browser.conftest import TEXT, Studio, visiting

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.weights]

SAMPLERS: dict[str, tuple[dict[str, Any], set[str]]] = {
    "repetition penalty": ({"repetition_penalty": 1.3}, {"penalties"}),
    "frequency penalty": ({"frequency_penalty": 0.5}, {"penalties"}),
    "dry": ({"dry_multiplier": 2.0, "dry_allowed_length": 1}, {"penalties"}),
    "length penalty": ({"length_penalty": 0.5}, {"penalties"}),
    "bans": ({"ban_tokens": list(range(0, 1000, 3))}, {"ban"}),
    "no repeated n-gram": ({"no_repeat_ngram_size": 1, "temperature": 1.0}, {"ban"}),
    "RAS": ({"ras": True, "ras_tau": 0.05, "ras_window": 40}, {"second draw (RAS)"}),
    "best of": ({"best_of": 3}, {"best take chosen"}),
    "beam": ({"beam_width": 2}, {"best take chosen"}),
    "entropix": ({"entropix": True}, {"entropix"}),
    "entropix that branches": (
        {"entropix": True, "entropix_action": "branch", "entropix_branch_interval": 5},
        {"entropix", "branched"},
    ),
    "backtracking": ({"backtrack": True, "backtrack_max_silence": 1}, {"rewound (silence)"}),
}


def fired(tokens: list[dict[str, Any]]) -> dict[str, int]:
    """How often each thing fired in the tokens that were kept, by the report alone."""
    kept: list[dict[str, Any]] = []
    for token in tokens:
        del kept[token["frame"] :]
        kept.append(token)
    return {
        "penalties": sum(token["changed"] > 0 for token in kept),
        "ban": sum(token["banned"] > 0 for token in kept),
        "second draw (RAS)": sum(token["repeated"] for token in kept),
        "branched": sum(token["branched"] for token in kept),
        "entropix": sum(token["entropix_state"] >= 0 for token in kept),
    }


@pytest.mark.parametrize("name", SAMPLERS)
def test_the_trace_of_a_sampler_draws_its_markers(studio, name) -> None:
    knobs, expected = SAMPLERS[name]
    studio.request(**{"input": TEXT, "preset": "default", "temperature": 0.9, "seed": 5} | knobs)
    number = studio.speak()
    studio.page.wait_for_selector(f"[data-take='{number}'] [data-curve]")
    drawn = studio.markers(number)
    lost = studio.page.query_selector(f"[data-take='{number}'] [data-curve=penalties]")
    assert ("penalties" in expected) == (lost is not None)  # nats, rather than a bar of all frames
    for marker in list(drawn):
        assert studio.inked(f"[data-take='{number}'] [data-marker='{marker}'] canvas") > 0
    utterances = studio.report(number)["utterances"]
    told: dict[str, int] = {}
    for utterance in utterances:
        for kind, count in fired(utterance["tokens"]).items():
            told[kind] = told.get(kind, 0) + count
        for rewind in utterance["backtracks"]:
            told[f"rewound ({rewind['cause']})"] = told.get(f"rewound ({rewind['cause']})", 0) + 1
        told["best take chosen"] = told.get("best take chosen", 0) + bool(utterance["takes"])
    states = sum(drawn.pop(marker) for marker in list(drawn) if marker.startswith("entropix "))
    told.pop("penalties")
    assert drawn | {"entropix": states} == {
        kind: count for kind, count in told.items() if count or kind == "entropix"
    }
    assert expected - {"penalties"} <= {kind for kind, count in told.items() if count}


def test_mirostat_and_a_temperature_that_varies_are_curves(studio) -> None:
    studio.request(input=TEXT, preset="default", seed=5, min_temperature=0.3, mirostat_mode=0)
    number = studio.speak()
    curve = studio.page.wait_for_selector(f"[data-take='{number}'] [data-curve=temperature]")
    assert curve.text_content().split() == ["temperature"]
    studio.request(input=TEXT, preset="default", seed=5, mirostat_mode=2)
    number = studio.speak()
    curve = studio.page.wait_for_selector(f"[data-take='{number}'] [data-curve=temperature]")
    assert curve.text_content().split() == ["temperature", "mirostat", "mu", "(bits)"]
    titles = [
        one.get_attribute("data-curve")
        for one in studio.page.query_selector_all(f"[data-take='{number}'] [data-curve]")
    ]
    assert titles == ["entropy", "temperature", "stop", "kept codes"]


def sent(server: httpx.Client, response: str) -> np.ndarray[Any, Any]:
    """The samples of a speech, decoded anew from its codes by the service."""
    answer = server.get(f"/v1/audio/speech/{response}/audio?response_format=pcm").raise_for_status()
    return np.frombuffer(answer.content, "<i2").astype(np.float32) / 32768


# Keeps what reaches the loudspeaker: an AudioWorklet tells of every block, however late the page's
# own thread is, where a ScriptProcessor loses blocks. It needs a secure context, and computes
# for as long as the page is open.
HEARD = """
const RECORDER = `registerProcessor("recorder", class extends AudioWorkletProcessor {
  process([[samples]]) {
    const block = samples ? [...samples] : Array(128).fill(0);
    this.port.postMessage({ time: currentTime, samples: block });
    return true;
  }
});`;
window.heard = [];
const connect = AudioNode.prototype.connect;
const record = async (context) => {
  const source = new Blob([RECORDER], { type: "text/javascript" });
  await context.audioWorklet.addModule(URL.createObjectURL(source));
  const recorder = new AudioWorkletNode(context, "recorder");
  recorder.port.onmessage = ({ data: { time, samples } }) => {
    heard.push(...samples);
    window.heardUntil = time;
  };
  connect.call(recorder, context.destination);
  context.recorder = recorder;
};
AudioNode.prototype.connect = function (to, ...rest) {
  const { context } = this;
  if (to === context.destination) {
    window.playing = context;
    context.recording ??= record(context);
    // At once where it can be: what is scheduled may begin before a promise is looked at.
    if (context.recorder) connect.call(this, context.recorder);
    else context.recording.then(() => connect.call(this, context.recorder));
  }
  return connect.call(this, to, ...rest);
};
"""


@pytest.fixture
def recorded(browser: Any, server: httpx.Client) -> Iterator[Studio]:
    """A page of which `heard` knows."""
    with visiting(browser, server, bypass_csp=True) as studio:
        studio.page.add_init_script(HEARD)
        studio.open()
        yield studio


def heard(studio: Studio) -> np.ndarray[Any, Any]:
    """The samples that have reached the loudspeaker, with those that are on their way to here."""
    now = studio.page.evaluate("playing.currentTime")
    studio.page.wait_for_function("now => window.heardUntil >= now", arg=now)
    return np.asarray(studio.page.evaluate("heard"), np.float32)


def test_the_samples_played_are_those_that_were_sent(recorded, server) -> None:
    studio, page = recorded, recorded.page
    number = studio.speak()
    page.wait_for_selector(f"[data-take='{number}'] .play[aria-label^=Play]")  # it has ended
    wanted = sent(server, studio.report(number)["id"])
    streamed = page.evaluate("scheduled")
    assert {part["rate"] for part in streamed} == {24000}
    joined = np.concatenate([part["samples"] for part in streamed]).astype(np.float32)
    assert np.array_equal(joined, wanted)
    # What follows in time follows to the sample, unless the service was too late.
    for part, after in pairwise(streamed):
        ends_s = part["when"] + len(part["samples"]) / 24000
        assert after["when"] > ends_s - 1e-6
    # Now from the beginning, as it reaches the loudspeaker.
    heard(studio)
    page.evaluate("heard.length = 0")
    page.click(f"[data-take='{number}'] .play")
    page.wait_for_selector(f"[data-take='{number}'] .play[aria-label^=Play]")
    got = heard(studio)
    got = got[np.flatnonzero(got)[0] - np.flatnonzero(wanted)[0] :][: len(wanted)]
    assert np.array_equal(got, wanted), np.flatnonzero(got != wanted)[:5]


# Sounds that begin at many samples of a minute, each after a pause, rendered as fast as it goes.
RENDERED = """
async (rate) => {
  const { timeOf } = await import("/studio/sound.js");
  const context = new OfflineAudioContext(1, 60 * rate, rate);
  const buffer = context.createBuffer(1, 3, rate);
  buffer.copyToChannel(Float32Array.of(0, 1, 0), 0);
  const begins = Array.from({ length: 2000 }, (_, n) => Math.round(0.0299 * rate * n));
  for (const begin of begins) {
    const node = new AudioBufferSourceNode(context, { buffer });
    node.connect(context.destination);
    node.start(timeOf(begin, rate));
  }
  const heard = (await context.startRendering()).getChannelData(0);
  const wrong = begins.filter((begin) => heard[begin + 1] !== 1);
  return { wrong, others: heard.reduce((sum, value) => sum + (value !== 0), 0) - begins.length };
}
"""


@pytest.mark.parametrize("rate", [8000, 22050, 24000, 44100])
def test_samples_are_unchanged_wherever_in_time_they_begin(spoken, rate) -> None:
    assert spoken.page.evaluate(RENDERED, rate) == {"wrong": [], "others": 0}


def test_a_click_seeks_and_keys_move_the_place(spoken) -> None:
    page = spoken.page
    lanes = page.locator("[data-take='1'] .heard")
    page.keyboard.press("Escape")
    box = lanes.bounding_box()
    slider = page.locator("[data-take='1'] [role=slider]")
    seconds = float(slider.get_attribute("aria-valuemax"))
    x = box["width"] * 0.6
    lanes.click(position={"x": x, "y": 30})
    place = float(slider.get_attribute("aria-valuenow"))
    assert place == pytest.approx(seconds * (x - 52) / (box["width"] - 52), abs=0.03)
    assert page.query_selector("[data-take='1'] .play[aria-label^=Pause]")
    page.keyboard.press("Escape")
    slider.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Shift+ArrowRight")
    moved = float(slider.get_attribute("aria-valuenow"))
    assert moved == pytest.approx(place + 11 / 75, abs=0.02)
    told = slider.get_attribute("aria-valuetext")
    assert "frame" in told
    assert "entropy" in told
    page.keyboard.press("Home")
    assert slider.get_attribute("aria-valuenow") == "0.00"


def test_hovering_tells_the_record_of_the_token(spoken) -> None:
    page = spoken.page
    report = spoken.report(1)
    box = page.locator("[data-take='1'] .heard").bounding_box()
    page.mouse.move(box["x"] + 52 + 0.5 * (box["width"] - 52), box["y"] + 20)
    told = page.wait_for_selector("[data-take='1'] .token summary").text_content()
    frame = int(told.split("frame ")[1].split()[0])
    utterance = report["utterances"][int(told.split("utterance ")[1].split(",")[0]) - 1]
    assert frame > 5
    assert told.endswith(f"codes {' '.join(map(str, utterance['codes'][frame]))}")
    token = [one for one in utterance["tokens"] if one["frame"] == frame][-1]
    shown = dict(
        zip(
            page.locator("[data-take='1'] .token dt").all_text_contents(),
            page.locator("[data-take='1'] .token dd").all_text_contents(),
            strict=True,
        )
    )
    likeliest = {"top_logprobs", "top_scores"}
    assert set(shown) == {name for name, value in token.items() if value is not None} - likeliest
    assert int(shown["code"]) == token["code"]
    assert float(shown["entropy_bits"]) == pytest.approx(token["entropy_bits"], rel=0.01)


def test_what_is_drawn_takes_the_colours_of_another_theme(spoken) -> None:
    page, take = spoken.page, "[data-take='1']"
    page.wait_for_selector(f"{take} .play:text('▶')")  # played to its end: nothing else redraws it
    most = """canvas => {
      const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
      const counts = new Map();
      for (let n = 0; n < data.length; n += 4) {
        if (data[n + 3] < 255) continue;
        const colour = [...data.slice(n, n + 3)].map((one) => one.toString(16).padStart(2, "0"));
        counts.set(colour.join(""), (counts.get(colour.join("")) ?? 0) + 1);
      }
      return [...counts].sort(([, one], [, other]) => other - one)[0][0];
    }"""
    wave, curve = (f"{take} {one} canvas" for one in (".lane", "[data-curve=temperature]"))
    seen = {}
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        page.wait_for_timeout(300)
        seen[scheme] = [page.eval_on_selector(one, most) for one in (wave, curve)]
    assert seen["light"][0] == "1f6f8b"
    assert seen["dark"][0] == "5fb3ce"
    assert seen["light"][1] != seen["dark"][1]


def test_waveform_and_codes_are_drawn(spoken) -> None:
    canvases = spoken.page.locator("[data-take='1'] .lane canvas")
    labels = [canvases.nth(n).get_attribute("aria-label") for n in range(canvases.count())]
    assert labels[0].startswith("Waveform")
    assert any(label.startswith("Codes of") for label in labels)
    boxes = [canvases.nth(n).bounding_box() for n in range(canvases.count())]
    assert len({box["x"] for box in boxes}) == 1  # one time axis, one lane below the other
    assert all(upper["y"] + upper["height"] <= lower["y"] for upper, lower in pairwise(boxes))
    box = spoken.page.locator("[data-take='1'] .heard").bounding_box()
    assert all(one["x"] + one["width"] <= box["x"] + box["width"] + 1 for one in boxes)
    for n in range(canvases.count()):
        assert spoken.inked(f"[data-take='1'] .lane:has(canvas) >> nth={n} >> canvas") > 500


SUM = "scheduled.at(-1).samples.reduce((sum, value) => sum + Math.abs(value), 0)"
"""Tells two sounds apart."""


def two_takes(studio: Studio) -> tuple[int, int]:
    studio.request(input="One two three four five six.", seed=1)
    first = studio.speak()
    studio.request(input="One two three four five six.", seed=2, temperature=0.9)
    second = studio.speak()
    studio.page.keyboard.press("Escape")
    studio.page.click(f"[data-take='{first}'] .side.a")
    studio.page.click(f"[data-take='{second}'] .side.b")
    studio.page.wait_for_selector(".compare .two")
    return first, second


_SWITCH = """async () => {
  const button = (text) =>
    [...document.querySelectorAll(".compare button")].find((one) => one.textContent.includes(text));
  button("Play A").click();
  await new Promise((done) => setTimeout(done, 600));
  scheduled.length = 0;
  button("Switch to B").click();
  await new Promise((done) => setTimeout(done, 0));
  return document.querySelector(".compare [aria-label='Pause B']") !== null;
}"""
"""Switch from A to B in mid-play: within the page, as the take is over in less than two seconds."""


_SEEK_AND_SWITCH = """async ([clientX, clientY]) => {
  for (const type of ["pointerdown", "pointerup"]) {
    const event = new PointerEvent(type, { clientX, clientY, button: 0, bubbles: true });
    document.querySelector("[data-side=a] .heard").dispatchEvent(event);
    await new Promise((done) => setTimeout(done, 0));
  }
  scheduled.length = 0;
  const buttons = [...document.querySelectorAll(".compare button")];
  buttons.find((one) => one.textContent.includes("Switch to B")).click();
}"""


def test_a_and_b_are_equally_loud_and_switched_in_mid_play(studio) -> None:
    page = studio.page
    two_takes(studio)
    gains = [float(text.split()[0]) for text in page.locator(".compare .gain").all_text_contents()]
    assert max(gains) == 0.0
    assert min(gains) <= 0.0
    assert page.evaluate(_SWITCH)
    (part,) = page.evaluate("scheduled")
    whole_s = float(page.get_attribute("[data-side=b] [role=slider]", "aria-valuemax"))
    left_s = len(part["samples"]) / 24000
    assert 0.2 < whole_s - left_s < 1.6  # it goes on near where A was, not at the beginning
    assert studio.told() == "Now B"
    page.keyboard.press("Escape")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("x")
    assert page.query_selector(".compare [aria-label^='Pause']")


def test_the_blind_test_asks_ten_times_by_mouse_or_keys_and_tells_the_result(studio) -> None:
    page = studio.page
    two_takes(studio)
    page.click("text=Blind test")
    for n in range(10):
        page.wait_for_selector(f"text=Number {n + 1} of 10")
        sounds = {}
        for key, button in (("a", "Play A"), ("b", "Play B"), ("x", "Play X")):
            if n:
                page.keyboard.press(key)
            else:
                page.click(f".compare .actions >> text='{button}'")
            sounds[key] = page.evaluate(SUM)
        assert page.query_selector(".takes [aria-label^=Pause]") is None  # nothing betrays it
        is_a = sounds["x"] == sounds["a"]
        guess = is_a if n < 9 else not is_a
        if n:
            page.keyboard.press("1" if guess else "2")
        else:
            page.click("text=X is A" if guess else "text=X is B")
    told = page.text_content(".compare .result")
    assert told.startswith("9 of 10 right.")
    assert "1.1 %" in told  # 11 of 1024


def test_speaking_can_be_stopped(studio) -> None:
    studio.write("This is a long sentence that goes on. " * 8)
    studio.page.click("button.speak")
    studio.page.wait_for_selector("[data-take='1']")
    studio.page.keyboard.press("Escape")
    studio.page.wait_for_selector("[data-take='1'][data-outcome=cancelled]")
    assert studio.page.text_content("button.speak") == "Speak"


def test_words_lie_where_the_report_says_and_a_switch_meets_the_same_word(studio) -> None:
    page = studio.page
    first, second = two_takes(studio)
    words = page.locator("[data-side=a] .words span")
    assert words.all_text_contents() == ["One", "two", "three", "four", "five", "six."]
    box = page.locator("[data-side=a] .heard").bounding_box()
    slider = page.locator("[data-side=a] [role=slider]")
    seconds = float(slider.get_attribute("aria-valuemax"))
    reports = {}
    for side, number in (("a", first), ("b", second)):
        page.click(f"[data-take='{number}'] .title")
        reports[side] = studio.report(number)
    spoken = {
        side: [word for one in report["utterances"] for word in one["words"]]
        for side, report in reports.items()
    }
    lefts = [words.nth(n).bounding_box()["x"] for n in range(6)]
    for left, word in zip(lefts, spoken["a"], strict=True):
        share = (left - box["x"] - 52) / (box["width"] - 52)
        assert share * seconds == pytest.approx(word["start_s"], abs=0.02)
    # In the middle of "four" of A, so in the middle of "four" of B.
    word = spoken["a"][3]
    middle_s = (word["start_s"] + word["end_s"]) / 2
    x = box["x"] + 52 + middle_s / seconds * (box["width"] - 52)
    page.evaluate(_SEEK_AND_SWITCH, [x, box["y"] + 20])
    (part,) = page.evaluate("scheduled")
    whole_s = float(page.get_attribute("[data-side=b] [role=slider]", "aria-valuemax"))
    at_s = whole_s - len(part["samples"]) / 24000
    there = spoken["b"][3]
    assert there["start_s"] - 0.02 <= at_s <= spoken["b"][4]["end_s"]


def cut(studio: Studio, number: int) -> dict[str, Any]:
    """Let the next take go on from the middle of a take; return where that is."""
    page = studio.page
    page.wait_for_selector(f"[data-take='{number}'] [data-curve]")
    page.focus(f"[data-take='{number}'] [role=slider]")
    page.keyboard.press("Home")
    for _ in range(6):
        page.keyboard.press("Shift+ArrowRight")
    page.click(f"[data-take='{number}'] .go-on")
    assert f"Continues take {number} from" in page.text_content(".request .note")
    page.click(".request >> text=Export")
    told = page.text_content("[data-way=Link] pre").split("#")[1]
    place: dict[str, Any] = json.loads(unquote(told))["continue_from"]
    page.keyboard.press("Escape")
    return place


def test_going_on_keeps_the_take_up_to_there_and_draws_the_rest_with_other_knobs(studio) -> None:
    page = studio.page
    studio.request(input="One two three four five six.", seed=1)
    first = studio.speak()
    before = studio.report(first)
    place = cut(studio, first)
    assert place["id"] == before["id"]
    assert 40 < place["frame"] < 80
    number = studio.speak()
    after = studio.report(number)
    assert after["codes_sha256"] == before["codes_sha256"]  # the same knobs and seed
    drawn = studio.markers(number)
    assert drawn["continued from here"] == 1
    page.click(f"[data-take='{first}'] .title")
    place = cut(studio, first)
    page.fill("#search", "seed")
    page.fill("#knob-seed", "99")
    number = studio.speak()
    after = studio.report(number)
    assert after["codes_sha256"] != before["codes_sha256"]
    kept = slice(0, place["frame"])
    assert after["utterances"][0]["codes"][kept] == before["utterances"][0]["codes"][kept]
    page.click("text=Start from the beginning")
    assert page.query_selector(".request .note") is None


def test_a_token_shows_the_ten_likeliest_codes_and_what_each_processor_did(studio) -> None:
    studio.request(input=TEXT, seed=3, top_p=0.8, temperature=0.7, repetition_penalty=1.3)
    number = studio.speak()
    page = studio.page
    page.wait_for_selector(f"[data-take='{number}'] [data-curve]")
    report = studio.report(number)
    cursor = page.locator(f"[data-take='{number}'] [role=slider]")
    for _ in range(3):
        cursor.press("Shift+ArrowRight")
    told = page.text_content(f"[data-take='{number}'] .token summary")
    frame = int(told.split("frame ")[1].split()[0])
    token = [one for one in report["utterances"][0]["tokens"] if one["frame"] == frame][-1]
    likeliest = token["top_logprobs"] + token["top_scores"]
    codes = list(dict.fromkeys(one["code"] for one in likeliest))
    rows = page.locator(".likeliest tbody tr")
    assert [
        int(row) for row in rows.evaluate_all("all => all.map(one => one.dataset.code)")
    ] == codes
    heads = page.locator(".likeliest th[scope=col]").all_text_contents()
    assert {"top p", "temperature"} <= set(heads) <= {
        "code", "model", "repetition penalty", "temperature", "top p", "drawn from",
    }  # fmt: skip
    for one in token["top_logprobs"]:
        cells = page.locator(f".likeliest tr[data-code='{one['code']}'] td").all_text_contents()
        told = dict(zip(heads[1:], cells, strict=True))
        assert float(told["model"].split()[0]) == pytest.approx(
            100 * math.exp(one["logprob"]), abs=0.06
        )
        top_p = one["effects"].get("top_p", 0)
        assert (told["top p"] == "out") == (top_p is None)
        assert (told["drawn from"] == "out") == (one["score"] is None)
    drawn = page.locator(".likeliest .drawn th").text_content()
    assert drawn == f"{token['code']} (drawn)"


def test_codes_are_changed_in_place_and_heard_as_another_take(studio, server) -> None:
    """By keyboard: the cursor chooses the frame, the field its code, Enter decodes."""
    number = studio.speak()
    page = studio.page
    page.wait_for_selector(f"[data-take='{number}'] [data-curve]")
    spoken = studio.report(number)["utterances"][0]["codes"]
    cursor = page.locator(f"[data-take='{number}'] [role=slider]")
    for _ in range(3):
        cursor.press("Shift+ArrowRight")
    field = page.locator("[aria-label='Code of level 0']")
    before = int(field.input_value())
    after = (before + 400) % 1024
    frame = int(page.text_content(".token summary").split("frame ")[1].split()[0])
    field.fill(str(after))
    field.press("Enter")
    page.wait_for_selector(f"[data-take='{number + 1}'].open [data-curve]")
    assert "codes of 1 frame changed" in page.text_content(f"[data-take='{number + 1}'] .title")
    heard = studio.report(number + 1)["utterances"][0]["codes"]
    changed = [at for at, pair in enumerate(zip(spoken, heard, strict=True)) if pair[0] != pair[1]]
    assert changed == [frame]
    assert [spoken[frame][0], heard[frame][0]] == [before, after]
