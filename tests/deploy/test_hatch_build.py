"""A wheel's modules name one another in `valle_serve`; all else of a module stays as it was."""

from typing import Any

import pytest

from tests.conftest import ROOT

hatch_build: Any = pytest.importorskip("hatch_build", reason="scripts/lock has hatchling")


@pytest.mark.parametrize(
    ("source", "moved"),
    [
        ("from app.cli import main", "from valle_serve.app.cli import main"),
        ("from samplers import nar", "from valle_serve.samplers import nar"),
        ("if 1:\n    from gpu import graphs", "if 1:\n    from valle_serve.gpu import graphs"),
        ("import samplers", "import valle_serve.samplers as samplers"),
        ("import models.config as c", "import valle_serve.models.config as c"),
        ("import os, models, io", "import os, valle_serve.models as models, io"),
        ("é = 1; import gpu", "é = 1; import valle_serve.gpu as gpu"),
        ('x = "app.commands.serve"', 'x = "valle_serve.app.commands.serve"'),
        ("x = 'app.engine.reading:table'", "x = 'valle_serve.app.engine.reading:table'"),
        ('f("app.cli", "app.cli")', 'f("valle_serve.app.cli", "valle_serve.app.cli")'),
    ],
)  # fmt: skip
def test_name_of_a_module_that_moves_is_renamed(source: str, moved: str) -> None:
    assert hatch_build.moved(source.encode(), ROOT).decode() == moved


@pytest.mark.parametrize(
    "source",
    [
        "import application\nfrom modelsx import a\nfrom valle_serve import samplers\n",
        "x = 'app'\n",  # a word
        "log = getLogger('app.api.gate.access_log')\n",  # no module: a name that operators know
        '"""See `app.cli`: from app.cli import main."""\n',
        "# from app.cli import main\r\nx = 1\r\n",
    ],
)
def test_what_names_no_module_that_moves_stays(source: str) -> None:
    assert hatch_build.moved(source.encode(), ROOT).decode() == source


def test_import_that_binds_the_name_of_a_package_that_moves_is_refused() -> None:
    with pytest.raises(ValueError, match="line 2"):
        hatch_build.moved(b"import os\nimport app.server\n", ROOT)
