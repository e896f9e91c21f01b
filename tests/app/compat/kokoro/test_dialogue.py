"""Dialogues in Kokoro-FastAPI's shape."""

import httpx
import pytest
from pydantic import ValidationError

from app.compat.kokoro.dialogue import DialogueRequest, Turn
from tests.app.tools.answers import refusal, report_of

PAIR = [{"voice": "default", "text": "So?"}, {"voice": "alloy", "text": "It did."}]


@pytest.mark.parametrize(
    ("pause_s", "between"),
    [(0, " "), (0.5, " [pause:500ms] "), (0.0001, " "), (10, " [pause:10000ms] ")],
)
def test_turns_are_a_text_with_voices_and_pauses(pause_s, between) -> None:
    turns = tuple(Turn(**one) for one in PAIR)
    body = DialogueRequest(turns=turns, pause_between_turns=pause_s)
    assert body.text == f"[voice:default] So?{between}[voice:alloy] It did."


def test_what_else_was_asked_for_is_kept_and_nothing_is_added() -> None:
    turns = tuple(Turn(**one) for one in PAIR)
    wanted = DialogueRequest(turns=turns, seed=7, top_p=0.5, response_format="wav").speech()
    assert (wanted.seed, wanted.top_p, wanted.response_format) == (7, 0.5, "wav")
    assert wanted.streamed
    assert "temperature" not in wanted.model_fields_set


@pytest.mark.parametrize("name", ["", " ", "a] [voice:b", "a\nb"])
def test_a_name_that_would_leave_its_tag_is_refused(name) -> None:
    with pytest.raises(ValidationError):
        Turn(voice=name, text="Hello.")


@pytest.mark.parametrize("stream", [True, False])
def test_each_turn_is_spoken_in_its_voice(toy_server: httpx.Client, stream) -> None:
    body = {"turns": PAIR, "stream": stream, "lang_code": "a", "seed": 3}
    answer = toy_server.post("/dev/dialogue", json=body)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "audio/mpeg"
    assert answer.headers["x-ignored"] == "lang_code"
    spoken = report_of(toy_server, answer)["utterances"]
    assert [(one["voice"], one["text"]) for one in spoken] == [
        ("default", "So?"),
        ("alloy", "It did."),
    ]


@pytest.mark.parametrize(
    ("body", "refused"),
    [
        ({"turns": []}, (422, "turns")),
        ({"turns": [{"voice": "default", "text": " "}]}, (422, "input")),
        ({"turns": [{"voice": "default"}]}, (422, "turns.0.text")),
        ({"turns": [*PAIR, {"voice": "nobody", "text": "Who?"}]}, (422, "input")),
        ({"turns": PAIR, "pause_between_turns": 11}, (422, "pause_between_turns")),
        ({"turns": PAIR, "response_format": "codes"}, (422, "response_format")),
    ],
)
def test_a_dialogue_that_cannot_be_spoken_is_refused(
    toy_server: httpx.Client, body, refused
) -> None:
    assert refusal(toy_server.post("/dev/dialogue", json=body)) == refused
