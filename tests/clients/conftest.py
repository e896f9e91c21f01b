from collections.abc import Iterator

import httpx
import pytest

from app.main import create_app
from app.settings import Settings
from tests.app.tools.serving import served
from tests.toy.make_toy import make

SEED = 3  # the toy model speaks then; of some 150 other seeds, one has it end at once
OPENAI_VOICES = [
    "alloy",
    "ash",
    "ballad",
    "cedar",
    "coral",
    "echo",
    "fable",
    "marin",
    "nova",
    "onyx",
    "sage",
    "shimmer",
    "verse",
]


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A client of a live server that speaks with the toy model; it knows nothing of OpenAI."""
    toy = make(tmp_path_factory.mktemp("models") / "toy")
    voices = str(tmp_path_factory.mktemp("voices"))  # and not what the developer uploaded
    with served(create_app(Settings(model=str(toy), device="cpu", voices=voices))) as client:
        yield client
