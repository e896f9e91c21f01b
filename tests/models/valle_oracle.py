"""A slow forward of the published layouts: one sequence, float64, no cache, no fused matrix.

Written from the description of the format and over its own tensor names; shares nothing with
`models`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

Task = Literal["ar", "nar", "masked", "len"]


@dataclass(frozen=True)
class Oracle:
    tensors: Mapping[str, Tensor]
    heads: int
    sums: str = "exclusive"
    mask: str = "full"
    language: bool = False
    unified: bool = False

    def logits(
        self,
        task: Task,
        phn: Sequence[int],
        response: Tensor,
        *,
        level: int = 0,
        lang: int = 0,
        prompt: Tensor | None = None,
    ) -> Tensor:
        """Return the task's rows; the response is codes ``[T, K]``, masked ``[T]``, or digits."""
        segments = [[self.row("text_emb.weight", i) for i in phn]]
        if self.language:
            rows = len(self.tensors["langs_emb.weight"])
            segments.append([self.row("langs_emb.weight", min(lang, rows - 1))])
        segments.append([self.row("rvq_l_emb.weight", level)])
        if prompt is not None:
            segments.append([self.heard("proms_emb", frame, level, 0) for frame in prompt.tolist()])
        segments.append(self.response(task, response, level))
        vectors: list[Tensor] = []
        positions: list[int] = []
        for number, segment in enumerate(segments):
            part = list(segment)
            if number < len(segments) - 1:
                part.append(self.get("sep"))
            vectors += part
            positions += range(len(part))
        if self.unified:
            positions = list(range(len(vectors)))
        causal = task in {"ar", "len"} or self.mask == "causal"
        hidden = self.stack(torch.stack(vectors), positions, causal)
        levels = len(self.tensors["rvq_l_emb.weight"])
        head = {"ar": 0, "nar": level, "masked": levels, "len": levels + 2}[task]
        out = hidden @ self.get(f"classifiers.proj.{head}.weight").T
        if f"classifiers.proj.{head}.bias" in self.tensors:
            out = out + self.get(f"classifiers.proj.{head}.bias")
        count = len(segments[-1])
        return out[len(out) - count - 1 :] if task == "ar" else out[len(out) - count :]

    def response(self, task: Task, response: Tensor, level: int) -> list[Tensor]:
        masked = f"resps_emb.embeddings.{len(self.tensors['rvq_l_emb.weight'])}.weight"
        if task == "len":
            return [self.row("len_emb.weight", i) for i in response.tolist()]
        if task == "masked":
            return [self.row(masked, i) for i in response.tolist()]
        if task == "ar":
            return [self.row("resps_emb.embeddings.0.weight", int(i)) for i in response[:, 0]]
        return [self.heard("resps_emb", frame, level, 1) for frame in response.tolist()]

    def heard(self, side: str, frame: Sequence[int], level: int, shift: int) -> Tensor:
        """Sum a frame's embeddings of the levels that a level is given."""
        if level == 0:
            given = [0]
        elif self.sums == "none":
            given = [level - 1]
        elif self.sums == "exclusive" and level >= 2:
            given = list(range(level - 1))
        else:
            given = list(range(level))
        total = torch.zeros_like(self.get("sep"))
        for k in given:
            total = total + self.row(f"{side}.embeddings.{k + shift}.weight", frame[k])
        return total

    def stack(self, x: Tensor, positions: Sequence[int], causal: bool) -> Tensor:
        layer = 0
        while f"model.layers.{layer}.input_layernorm.weight" in self.tensors:
            name = f"model.layers.{layer}"
            y = self.norm(x, f"{name}.input_layernorm.weight")
            q, k, v = (y @ self.get(f"{name}.self_attn.{part}_proj.weight").T for part in "qkv")
            attended = self.attend(q, k, v, positions, causal)
            x = x + attended @ self.get(f"{name}.self_attn.o_proj.weight").T
            y = self.norm(x, f"{name}.post_attention_layernorm.weight")
            gate, up = (y @ self.get(f"{name}.mlp.{part}_proj.weight").T for part in ("gate", "up"))
            gelu = 0.5 * gate * (1 + torch.erf(gate / 2**0.5))
            x = x + (gelu * up) @ self.get(f"{name}.mlp.down_proj.weight").T
            layer += 1
        return self.norm(x, "model.norm.weight")

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, positions: Sequence[int], causal: bool
    ) -> Tensor:
        width = q.shape[1] // self.heads
        half = width // 2
        out = []
        for head in range(self.heads):
            part = slice(head * width, (head + 1) * width)
            rotated = []
            for x in (q[:, part], k[:, part]):
                rows = []
                for row, position in zip(x, positions, strict=True):
                    angles = position * 10000 ** (-2 * torch.arange(half).double() / width)
                    a, b = row[:half], row[half:]
                    turned = (
                        a * angles.cos() - b * angles.sin(),
                        b * angles.cos() + a * angles.sin(),
                    )
                    rows.append(torch.cat(turned))
                rotated.append(torch.stack(rows))
            scores = rotated[0] @ rotated[1].T / width**0.5
            if causal:
                later = torch.ones_like(scores).triu(1).bool()
                scores = scores.masked_fill(later, -torch.inf)
            out.append(scores.softmax(-1) @ v[:, part])
        return torch.cat(out, 1)

    def norm(self, x: Tensor, name: str) -> Tensor:
        return x * (x.pow(2).mean(-1, keepdim=True) + 1e-6).rsqrt() * self.get(name)

    def row(self, name: str, number: int) -> Tensor:
        return self.get(name)[number]

    def get(self, name: str) -> Tensor:
        return self.tensors[name].double()
