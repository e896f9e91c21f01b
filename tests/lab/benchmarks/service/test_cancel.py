"""What the measurements of what is left behind see, on a toy server in this process."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from app.settings import Settings
from lab.benchmarks.harness.http_client import open_client
from lab.benchmarks.harness.injection import FAULTS
from lab.benchmarks.harness.instrumented import observed_app
from lab.benchmarks.harness.served import served_here
from lab.benchmarks.harness.vitals import settled_vitals
from lab.benchmarks.service import cancel, faults, soak

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def url(toy: Path) -> Iterator[str]:
    settings = Settings(
        model=str(toy),
        device="cpu",
        max_queue=8,
        request_timeout_s=60,
        voice_process=False,
        text_process=False,
    )
    with served_here(observed_app(settings)) as address:
        yield address


@pytest.fixture(autouse=True)
def _short_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (cancel, faults, soak):
        monkeypatch.setattr(module, "texts", lambda count: ["One.", "Oh no.", "Yes."] * count)


@pytest.mark.anyio
async def test_who_leaves_is_waited_for_and_memory_is_read(url: str):
    rows, targets, memory = await cancel.measure(url, count=3, requests=11)
    assert [row["who left"] for row in rows] == [
        "3 clients, one at a time",
        "3 clients, 8 at a time",
    ]
    assert len(memory) == 2
    assert all(value > 0 for value in memory)
    held = {target.what: target.holds for target in targets}
    assert held["tasks left"]
    assert held["files left"]
    assert held["running left"]


@pytest.mark.anyio
async def test_one_row_that_breaks_is_told_and_others_hear_everything(url: str):
    fault = replace(FAULTS[0], after_calls=10)
    async with open_client(url) as client:
        clients = faults.FaultClients(client)
        await clients.learn()
        row = await faults.row_of(fault, clients, url)
    assert row["as asked"], row


@pytest.mark.anyio
async def test_a_soak_counts_what_came(url: str):
    before = await settled_vitals(url)
    log = await soak.soak(url, minutes=0.05, rate_hz=8.0)
    after = await settled_vitals(url)
    assert log.outcomes.total() > 5
    assert {outcome for _, outcome in log.outcomes} <= {"good", "503"}
    assert log.vitals
    targets = soak.targets_of(log, 0.05, before, after)
    assert {target.what for target in targets if target.holds} >= {
        "requests that broke",
        "files left",
    }
