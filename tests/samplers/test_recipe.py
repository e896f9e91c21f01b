"""CONTRIBUTING's recipe is true: by its steps, a new sampler is on the wire and changes codes."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from app.main import create_app
from samplers.knobs.params import SamplingParams
from tests.app.tools.serving import served, settings_of
from tests.conftest import ROOT
from tests.toy.make_toy import make

pytestmark = pytest.mark.slow

COPIED = (
    "app", "cpu", "gpu", "models", "samplers", "scripts", "docs", "tests/samplers", "tests/toy",
)  # fmt: skip
FILES = (
    "tests/__init__.py",
    "tests/conftest.py",
    "tests/fixtures.py",
    "tests/app/api/test_reachable.py",
    ".env.example",
)

KNOB = "collision_cutoff"
OPERATION = '''

def collision_floor(logits: Tensor, share: Tensor) -> Tensor:
    """Return the logit of a code ``share`` times as likely as two draws are to agree."""
    agreement = logits.softmax(-1).square().sum(-1, keepdim=True)
    floor = logits.logsumexp(-1, keepdim=True) + (share * agreement).log()
    return torch.minimum(floor, logits.amax(-1, keepdim=True))
'''
FIELD = """\
    collision_cutoff: Annotated[float, SwitchesStep("collision_cutoff")] = knob(
        0.0, "Keep codes at least this many times as likely as two draws are to agree.",
        group="truncation", off=0.0, step=0.05, ge=0.0, le=1.0,
    )
"""
PROCESSOR = '''

class CollisionCutoff(LogitsProcessor):
    """Keeps codes above a share of the probability that two draws agree."""

    features = ("collision_cutoff",)

    def __init__(self, batch: BatchParams) -> None:
        self._share = batch.knob("collision_cutoff", 0.0)

    def __call__(self, scores: Scores) -> None:
        """Filter the scores."""
        scores.keep_from(filters.collision_floor(scores.logits, self._share))
'''
REGISTERED = "    truncation.CollisionCutoff,\n"
TEST = """

def test_a_collision_cutoff_keeps_what_brute_force_keeps_and_off_keeps_all() -> None:
    logits = torch.tensor([[2.0, 1.0, 0.0, -1.0]] * 2)
    params = [SamplingParams(collision_cutoff=0.9), SamplingParams()]
    probs = logits[0].softmax(0).tolist()
    agreement = sum(prob * prob for prob in probs)
    wanted = [place for place, prob in enumerate(probs) if prob >= 0.9 * agreement]
    found = run(["collision_cutoff"], params, logits)
    assert kept(found) == [wanted, [0, 1, 2, 3]]
    assert torch.equal(found[1], logits[1])
"""
REACHED = '    "collision_cutoff": (1.0, {}),\n'
SAID = "- `collision_cutoff`: keeps codes by how likely two draws are to agree.\n"

EDITS: dict[str, tuple[str | None, str]] = {
    "samplers/ops/filters.py": (None, OPERATION),
    "samplers/knobs/steps.py": ("    xtc_probability: ", FIELD),
    "samplers/processors/truncation.py": (None, PROCESSOR),
    "samplers/processors/registry.py": ("    truncation.Xtc,", REGISTERED),
    "tests/samplers/ops/test_filters.py": (None, TEST),
    "tests/app/api/test_reachable.py": ('    "xtc_probability": ', REACHED),
    "docs/samplers.md": ("- `xtc_probability`", SAID),
}
"""What each step adds: before which line (None is at the end), and the text."""

ASKED = {"input": "Hi.", "seed": 1, "max_duration_s": 0.32, "nar_levels": 0}
ASK = """
import json, sys, time
from fastapi.testclient import TestClient
from app.main import create_app
from app.settings import Settings

app = create_app(Settings(model=sys.argv[1], device="cpu", weights="float32"))
codes = []
with TestClient(app, base_url="http://127.0.0.1") as client:
    while client.get("/ready").status_code != 200:
        time.sleep(0.1)
    for body in json.loads(sys.argv[2]):
        answer = client.post("/tts", json=body)
        assert answer.status_code == 200, answer.text
        codes.append(answer.headers["x-codes-sha256"])
print(json.dumps({"codes": codes, "document": app.openapi()}))
"""


def recipe() -> list[str]:
    """The steps of CONTRIBUTING's recipe for a sampler."""
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    section = text.partition("### A sampler\n")[2].partition("\n### ")[0]
    return re.split(r"^\d+\. ", section, flags=re.MULTILINE)[1:]


def python(tree: Path, *arguments: str) -> str:
    """What Python prints in a source tree."""
    environ = {"PYTHONPATH": str(tree), "TTS_VOICE_PROCESS": "0", "PATH": "/usr/bin:/bin"}
    ran = subprocess.run(
        [sys.executable, *arguments], cwd=tree, env=environ, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-2000:]
    return ran.stdout


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the sources in which the recipe was followed."""
    tree = tmp_path_factory.mktemp("tree")
    for folder in COPIED:
        shutil.copytree(ROOT / folder, tree / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for file in FILES:
        (tree / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / file, tree / file)
    steps = recipe()
    for step in steps:
        named = re.findall(r"`([^`]+)`", step)[0]
        before, added = EDITS[named]
        text = (tree / named).read_text("utf-8")
        at = len(text) if before is None else text.index(before)
        (tree / named).write_text(text[:at] + added + text[at:], "utf-8")
    (module,) = re.findall(r"python -m (scripts\.\w+)`", steps[-1])
    python(tree, "-m", module)
    return tree


def test_the_recipe_names_each_file_that_a_sampler_needs() -> None:
    assert [re.findall(r"`([^`]+)`", step)[0] for step in recipe()] == list(EDITS)
    assert KNOB not in SamplingParams.model_fields


@pytest.mark.timeout(600)
def test_a_sampler_by_the_recipe_is_on_the_wire_and_changes_codes(
    tree: Path, tmp_path: Path
) -> None:
    model = make(tmp_path / "toy")
    on, off = {**ASKED, KNOB: 1.0}, {**ASKED, KNOB: 0.0}
    ran = python(tree, "-c", ASK, str(model), json.dumps([on, off, ASKED]))
    answer = json.loads(ran.splitlines()[-1])
    changed, *same = answer["codes"]
    with served(create_app(settings_of(model))) as client:
        assert same == [client.post("/tts", json=ASKED).headers["x-codes-sha256"]] * 2
    assert changed != same[0]
    content = answer["document"]["paths"]["/tts"]["post"]["requestBody"]["content"]
    fields = content["application/json"]["schema"]["properties"]
    assert [fields[KNOB][key] for key in ("default", "minimum", "maximum")] == [0.0, 0.0, 1.0]
    order = fields["sampler_order"]["anyOf"]
    assert next(one for one in order if one["type"] == "array")["items"]["enum"][-2:] == [
        KNOB,
        "xtc",
    ]


def test_a_sampler_by_the_recipe_is_in_the_help_and_in_the_docs(tree: Path) -> None:
    speak = "import sys; from app.cli import main; sys.exit(main(sys.argv[1:]))"
    shown = python(tree, "-c", speak, "speak", "--help-knobs", "truncation")
    assert "--collision-cutoff" in shown or f"--{KNOB}" in shown
    row = next(
        line for line in (tree / "docs/parameters.md").read_text().splitlines() if KNOB in line
    )
    assert row.startswith(f"| `{KNOB}` | number, 0 to 1 | `0.0` | `0.0` | Keep codes")


def test_a_sampler_by_the_recipe_passes_its_own_test_and_those_of_the_registry(tree: Path) -> None:
    tests = ("tests/samplers/ops/test_filters.py", "tests/samplers/processors/test_registry.py")
    chosen = ("-k", "collision or registry", "-q", "-p", "no:cacheprovider", "-c", "/dev/null")
    assert " passed" in python(tree, "-m", "pytest", *tests, *chosen, "--rootdir", str(tree))
