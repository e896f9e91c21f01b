"""Texts as phonemes, and phonemes that are spoken, in Kokoro-FastAPI's shape."""

import httpx
import pytest

from tests.app.tools.answers import refusal, report_of

TEXT = "Hello there, Dr. Smith. It is $5."
READ = "Hello there, Doctor Smith. It is five dollars."


def phonemized(server: httpx.Client, **body: str) -> str:
    answer = server.post("/dev/phonemize", json=body)
    assert answer.status_code == 200, answer.text
    assert answer.json()["tokens"] == []
    return str(answer.json()["phonemes"])


@pytest.mark.parametrize("language", [{}, {"language": "a"}, {"language": "b"}, {"language": "en"}])
def test_a_text_is_phonemized_as_it_is_read(toy_server: httpx.Client, language) -> None:
    read = toy_server.post("/v1/audio/phonemes", json={"input": READ}).json()["utterances"]
    assert phonemized(toy_server, text=TEXT, **language) == " ".join(
        one["phonemes"] for one in read
    )


def test_what_was_phonemized_is_spoken(toy_server: httpx.Client) -> None:
    phonemes = phonemized(toy_server, text=TEXT)
    body = {"phonemes": phonemes, "voice": "default"}
    answer = toy_server.post("/dev/generate_from_phonemes", json=body)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "audio/wav"
    spoken = report_of(toy_server, answer)["utterances"]
    assert [one["phonemes"] for one in spoken] == phonemes.replace(". ", ".\n").split("\n")


@pytest.mark.parametrize(
    ("path", "body", "refused"),
    [
        ("phonemize", {"text": " "}, (422, "input")),
        ("phonemize", {"text": "Hallo.", "language": "z"}, (422, "language")),
        ("phonemize", {"input": "Hello."}, (422, "text")),
        ("generate_from_phonemes", {"phonemes": ""}, (422, "phonemes")),
        ("generate_from_phonemes", {"phonemes": "a]] [[b"}, (422, "phonemes")),
        ("generate_from_phonemes", {"phonemes": "\u4e2d"}, (422, "input")),
        ("generate_from_phonemes", {"phonemes": "a", "voice": "nobody"}, (404, "voice")),
    ],
)
def test_what_cannot_be_read_or_spoken_is_refused(
    toy_server: httpx.Client, path, body, refused
) -> None:
    assert refusal(toy_server.post(f"/dev/{path}", json=body)) == refused
