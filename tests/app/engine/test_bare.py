"""A machine that has torch, numpy and pydantic alone can import the engine and measure a card."""

import subprocess
import sys

import pytest

from tests.conftest import ROOT

PROGRAM = """
import importlib, importlib.metadata, re, sys

todo, needed = ["torch", "numpy", "pydantic"], set()
while todo:
    name = todo.pop().lower().replace("_", "-")
    if name not in needed:
        needed.add(name)
        try:
            asked = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:  # of another platform
            continue
        todo += [re.split("[^A-Za-z0-9._-]", one)[0] for one in asked if "extra ==" not in one]
allowed = {*sys.stdlib_module_names, *OWN}
for module, packages in importlib.metadata.packages_distributions().items():
    if needed & {name.lower().replace("_", "-") for name in packages}:
        allowed.add(module)


class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] not in allowed and not name.startswith("_sysconfigdata"):
            raise ModuleNotFoundError(f"{name} is not here", name=name)


sys.meta_path.insert(0, Blocked())
for module in MODULES:
    importlib.import_module(module)
"""
OWN = ("app", "cpu", "gpu", "models", "samplers", "lab")
MODULES = (
    "app.engine.engine", "app.engine.backend.synthesizer", "app.engine.ar.graph_runner",
    "app.engine.nar.graph_runner", "models.cuda.kernels.check", "lab.benchmarks.card.kernels",
    "lab.benchmarks.card.ar", "lab.benchmarks.card.profile", "lab.benchmarks.card.step_cost",
    "lab.benchmarks.card.ticket",
)  # fmt: skip


@pytest.mark.slow
def test_the_engine_imports_with_torch_numpy_and_pydantic_alone() -> None:
    program = f"OWN, MODULES = {OWN!r}, {MODULES!r}{PROGRAM}"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
