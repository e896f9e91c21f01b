"""Whether differences would be seen, on the toy server."""

import httpx2
import pytest

from lab.benchmarks.service import crossed, exact

ASKED = [
    exact.SeededRequest(text, 1, "auto", 0.3) for text in ("One.", "Oh no.", "Yes.", "Hey you.")
]


def url_of(client: httpx2.Client) -> str:
    return str(client.base_url).rstrip("/")


@pytest.mark.slow
@pytest.mark.anyio
async def test_a_request_is_the_same_in_every_manner(toy_server: httpx2.Client):
    rows = await exact.measure(url_of(toy_server), ASKED[:2])
    assert len(rows) == 6
    assert all(row["same codes"] == row["same bytes"] == 2 for row in rows), rows
    assert all(target.holds for target in exact.targets_of(rows))


@pytest.mark.anyio
async def test_everybody_hears_their_own(toy_server: httpx2.Client):
    tally = await crossed.measure(url_of(toy_server), [ASKED[:2], ASKED[2:]], 6)
    assert tally == {"own": 6, "another's": 0, "nobody's": 0, "failed": 0, "alike": 0}


class Swapped:
    """Speaks to each client what the other one asked for."""

    async def whole(self, request: exact.SeededRequest) -> exact.Fingerprint:
        return exact.Fingerprint("of " + ("b" if request.text == "a" else "a"), "")

    streamed = live = whole


@pytest.mark.anyio
async def test_a_swapped_answer_is_seen():
    known = [exact.Fingerprint("of a", ""), exact.Fingerprint("of b", "")]
    owned = [(exact.SeededRequest("a", 1, "auto"), known[0])]
    tally = dict.fromkeys(("own", "another's", "nobody's", "failed"), 0)
    await crossed.ask(Swapped(), owned, known, iter(range(3)), tally)  # type: ignore[arg-type]
    assert tally == {"own": 0, "another's": 3, "nobody's": 0, "failed": 0}
