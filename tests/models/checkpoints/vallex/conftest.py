"""The golden data of this family."""

from pathlib import Path

import pytest

from tests.conftest import golden_part
from tests.models.checkpoints.vallex.golden import SETTINGS, Golden


@pytest.fixture(scope="session")
def golden_vallex(golden: Path) -> Path:
    """The folder of the reference's data; a test that needs it is skipped without."""
    return golden_part(golden, "vallex")


@pytest.fixture(scope="module", params=SETTINGS)
def reference(
    request: pytest.FixtureRequest, golden_vallex: Path, tmp_path_factory: pytest.TempPathFactory
) -> Golden:
    """A model of the family that folds."""
    return Golden(golden_vallex, request.param, tmp_path_factory.mktemp("model"))
