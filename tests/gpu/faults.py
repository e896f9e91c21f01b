"""A module of kernels with a mistake in it."""

from pathlib import Path
from types import ModuleType


def changed(module: ModuleType, right: str, wrong: str, path: Path) -> ModuleType:
    assert module.__file__
    source, made = Path(module.__file__).read_text(encoding="utf-8"), ModuleType("faulty")
    assert right in source
    path.write_text(source.replace(right, wrong), encoding="utf-8")  # where Triton reads it
    exec(compile(path.read_text(encoding="utf-8"), path, "exec"), vars(made))
    return made
