"""Parts of stored audio."""

import httpx
import pytest

from tests.app.tools.answers import shape


@pytest.fixture(scope="module")
def paths(toy_server: httpx.Client) -> list[str]:
    spoken = toy_server.post("/tts", json={"input": "Hi.", "seed": 1, "max_duration_s": 0.3})
    name = spoken.headers["x-request-id"]
    speech = f"/v1/audio/speech/{name}/audio"
    return [speech, f"{speech}?response_format=mp3", "/v1/audio/voices/toy/audio"]


@pytest.fixture(scope="module", params=[0, 1, 2])
def path(request: pytest.FixtureRequest, paths: list[str]) -> str:
    return paths[int(request.param)]


@pytest.mark.parametrize(
    ("asked", "part"),
    [
        ("bytes=0-1", slice(0, 2)),
        ("bytes=0-0", slice(0, 1)),
        ("bytes=10-", slice(10, None)),
        ("bytes=-5", slice(-5, None)),
        ("bytes=7-99999999999", slice(7, None)),
        ("bytes=-99999999999", slice(0, None)),
        ("Bytes=3-4", slice(3, 5)),
    ],
)
def test_a_range_is_answered_with_that_part(
    toy_server: httpx.Client, path: str, asked: str, part: slice
) -> None:
    whole = toy_server.get(path)
    answer = toy_server.get(path, headers={"range": asked})
    start, stop, _ = part.indices(len(whole.content))
    assert (answer.status_code, answer.content) == (206, whole.content[part])
    assert answer.headers["content-range"] == f"bytes {start}-{stop - 1}/{len(whole.content)}"
    assert answer.headers["content-type"] == whole.headers["content-type"]
    assert answer.headers["etag"] == whole.headers["etag"]


@pytest.mark.parametrize("asked", ["bytes=0-1,4-5", "bytes=5-2", "bytes=-", "items=0-1", "bytes=x"])
def test_what_is_no_single_range_of_bytes_is_answered_with_the_whole(
    toy_server: httpx.Client, path: str, asked: str
) -> None:
    answer = toy_server.get(path, headers={"range": asked})
    assert (answer.status_code, answer.headers["accept-ranges"]) == (200, "bytes")
    assert int(answer.headers["content-length"]) == len(answer.content)


@pytest.mark.parametrize("asked", ["bytes=999999999-", "bytes=999999999-1000000000", "bytes=-0"])
def test_a_part_that_is_not_there_is_told_the_length(
    toy_server: httpx.Client, path: str, asked: str
) -> None:
    size = len(toy_server.get(path).content)
    answer = toy_server.get(path, headers={"range": asked})
    assert (answer.status_code, shape(answer)["param"]) == (416, "range")
    assert answer.headers["content-range"] == f"bytes */{size}"


def test_a_range_of_another_file_is_answered_with_the_whole(
    toy_server: httpx.Client, path: str
) -> None:
    tag = toy_server.get(path).headers["etag"]
    for given, status in ((tag, 206), ('"other"', 200), ("Fri, 27 Nov 2026 19:00:00 GMT", 200)):
        headers = {"range": "bytes=0-1", "if-range": given}
        assert toy_server.get(path, headers=headers).status_code == status


def test_a_speech_that_is_not_stored_has_no_parts(toy_server: httpx.Client) -> None:
    answer = toy_server.get("/v1/audio/speech/0/audio", headers={"range": "bytes=0-1"})
    assert answer.status_code == 404
