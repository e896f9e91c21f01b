"""The reference's models of random weights, and what it computes with them."""

import json
import shutil
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from models.checkpoints.vallex.load import load_vallex
from models.prefix import Prefix
from models.valle import Valle

SETTINGS: dict[str, dict[str, int]] = {
    "model": {"nhead": 4},
    "lifeiteng/mode0": {"nhead": 2, "prefix_mode": 0},
    "lifeiteng/mode4_half_nar": {"nhead": 4, "prefix_mode": 4},
}


def placed(folder: Path, name: str, target: Path, **settings: int) -> Path:
    """Copy a golden model to a folder, with settings beside it; return its file."""
    file = target / "model.safetensors"
    shutil.copy(folder / name / "model.safetensors", file)
    (target / "settings.json").write_text(json.dumps(SETTINGS.get(name, {}) | settings))
    return file


@dataclass(frozen=True)
class Case:
    """A text with a prompt, and the ids of both as the reference has them."""

    name: str
    said: list[int]
    ids: list[int]
    prompt: Tensor  # ``[P, 8]``
    codes: Tensor  # ``[T, 8]`` int64, for teacher forcing; none where T is 0
    enrolled: int = 0  # ids of the prompt's text, marks included; of lifeiteng's

    def text(self, model: Valle, level: int) -> list[int]:
        """Return the ids of the text as a level reads it."""
        if level and not model.config.nar_prompt_text:
            return [self.ids[0], *self.ids[self.enrolled - 1 :]]
        return [*self.said, *self.ids]

    def prefix(self, model: Valle, level: int) -> Prefix:
        """Return the prefix of a level."""
        return model.prefix(self.text(model, level), level, prompt=self.prompt)


class Golden:
    """One of the reference's models."""

    def __init__(self, folder: Path, name: str, target: Path) -> None:
        self.folder, self.name = folder / name, name
        self.model = load_vallex(placed(folder, name, target))
        self.expected = load_file(self.folder / "expected.safetensors")
        self.inputs: dict[str, Any] = json.loads((self.folder / "inputs.json").read_text())

    @cached_property
    def cases(self) -> list[Case]:
        """The cases of the model; of lifeiteng's there is one, without a name."""
        if "cases" not in self.inputs:
            one = self.inputs
            made = Case(
                "", [], one["text_ids"], torch.tensor(one["prompt"]), torch.tensor(one["codes"]),
                one["enrolled_length"],
            )  # fmt: skip
            return [made]
        rows = self.model.config.phoneme_rows
        found = []
        for one in self.inputs["cases"]:
            plain = [*one["prompt_text_ids"], *one["text_ids"]]
            ids = [
                own + rows * language
                for own, language in zip(plain, one["language_ids"], strict=True)
            ]
            count = len(one["prompt_text_ids"])
            codes = torch.tensor(one.get("codes") or []).view(-1, 8)
            prompt = torch.tensor(one["prompt"], dtype=torch.int64).view(-1, 8)
            found.append(Case(one["name"], ids[:count], ids[count:], prompt, codes.long()))
        return found

    def of(self, case: Case, what: str) -> Tensor:
        """Return what the reference computed of a case."""
        return self.expected[f"{case.name}.{what}" if case.name else what]


def stepped(model: Valle, prefix: Prefix, codes: list[int]) -> Tensor:
    """Return ``[T + 1, V]`` logits of level 0, by the cache, after a prefix and frames."""
    cache = model.new_cache(1, len(prefix) + len(codes))
    hidden = model.read(prefix, cache, 0)[0][-1:]
    rows = [model.logits(hidden, 0)]
    for frame, code in enumerate(codes):
        position = torch.tensor([prefix.response_start + frame])
        embedded = model.embed_response(torch.tensor([[code]]), 0)
        hidden = model.stack(0).step(embedded, position, cache, [0])[0]
        rows.append(model.logits(hidden, 0))
    return torch.cat(rows)
