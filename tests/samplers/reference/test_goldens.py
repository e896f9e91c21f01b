"""No family of golden vectors is forgotten."""

import json
from pathlib import Path


def test_every_family_is_read_by_some_test(golden: Path) -> None:
    index = json.loads((golden / "samplers" / "index.json").read_text())
    sources = "".join(path.read_text() for path in Path(__file__).parents[1].glob("**/test_*.py"))
    families = [family["family"] for family in index["families"]]
    assert [family for family in families if f'"{family}"' not in sources] == []
