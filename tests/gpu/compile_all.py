"""Compiles the kernels for cards that are not here; run by `test_compiles` as a process.

Prints a line of JSON a kernel: its name, the card, bytes of shared memory, registers of a thread,
bytes of the stack that it spills them to, and barriers, those of a loop in each round of a filter.
As at a launch with torch's tensors, every address is a multiple of 16 bytes; without that other
code is made, with loads of 2 bytes.
"""

import json
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from models.cuda.kernels.attention import attend_kernel, combine_kernel
from models.cuda.kernels.layers import gated_kernel, norm_kernel, product_kernel, store_kernel
from samplers.cuda.kernel import ROUNDS, sample_kernel

CUOBJDUMP = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
COUNTS = ("count", "rows", "outputs")
WARPS = {sample_kernel: 8, store_kernel: 1, combine_kernel: 1}
TURING, AMPERE, HOPPER, BLACKWELL = 75, 80, 90, 100


def kernels(kind: str) -> Iterator[tuple[Any, dict[str, str], dict[str, Any]]]:
    """Yield each kernel, the types of its arguments and its constants, at the published size."""
    factor = tl.bfloat16 if kind == "bf16" else tl.float32
    yield norm_kernel, {"eps": "fp32"}, {"WIDTH": 1024, "BLOCK": 1024}
    yield gated_kernel, {}, {"WIDTH": 4096, "GELU": True, "BLOCK": 1024}
    shapes = ((1024, 8, 512, True), (4096, 4, 4096, False))
    # Gated layers without biases, as the built-in model's, and plain ones with them, as VALL-E X's
    for (inputs, columns, step, first), plain in product(shapes, (False, True)):
        yield product_kernel, {"eps": "fp32"}, {
            "INPUTS": inputs, "NORM": first, "GATE": first and not plain, "GELU": not plain,
            "RELU": first and plain, "BIAS": plain, "ADD": not first,
            "COLUMNS": columns, "STEP": step,
        }  # fmt: skip
    places = {"rotations": "*fp32", "places": "*i64"}
    # In 8 bits with weights in bfloat16 alone: float32's factors made of integers spill.
    formats = ({}, {"keys": "*i8", "values": "*i8"}) if kind == "bf16" else ({},)
    for held in formats:
        yield store_kernel, places | held, {
            "HEADS": 16, "KV_HEADS": 16, "HALF": 32, "EACH": 4, "BLOCK": 32,
            "EIGHT": bool(held),
        }  # fmt: skip
    given = {"seen": "*i64", "pages": "*i64", "parts": "*fp32", "scale": "fp32"}
    tile = 64 if kind == "bf16" else 16
    tiles = ((16, 16, 1), (16, 1, 4), (tile, 1, 1))
    for (rows, shares, group), held in product(tiles, formats):
        yield attend_kernel, given | held, {
            "GROUP": group, "KV_HEADS": 16 // group, "HEAD_DIM": 64, "SHARES": shares,
            "ROWS": rows, "POSITIONS": 64, "BLOCK": 64, "FACTOR": factor,
            "EIGHT": bool(held),
        } | ({"count": 1} if rows == 16 else {})  # fmt: skip  # Triton makes a constant of every 1
    yield combine_kernel, {"parts": "*fp32"}, {"SHARES": 8, "HEAD_DIM": 64, "BLOCK": 64}
    if kind == "fp32":  # of any weights
        counts = ("numbers", "codes", "lengths", "nats", "sums")
        state = dict.fromkeys(counts, "*i64") | {"stopped": "*i1", "bias": "*fp32"}
        own = {"logits": "*fp32", "avoid": "*fp32", "knobs": "*fp64", "results": "*fp64"}
        yield sample_kernel, state | own, {"STOP": 1024, "SIZE": 1025, "BLOCK": 2048}


def compiled(kernel: Any, types: Mapping[str, str], constants: Mapping[str, Any], card: int) -> Any:
    names, early = kernel.arg_names, card >= HOPPER
    constants = {**constants, "EARLY": early}
    held = {(names.index(name),): value for name, value in constants.items() if name in names}
    numbers = [name for name in names if name.endswith("stride") or name in COUNTS]
    told = {name: kind for name, kind in types.items() if name in names}
    signature = dict.fromkeys(numbers, "i32") | told
    signature |= {name: "constexpr" for name in constants if name in names}
    target = GPUTarget("cuda", card, 32)
    aligned = [number for number, name in enumerate(names) if signature[name].startswith("*")]
    attributes = {(number,): [["tt.divisibility", 16]] for number in aligned}
    source = ASTSource(kernel, signature, constexprs=held, attrs=attributes)
    warps = WARPS.get(kernel, 8 if constants.get("STEP") == 4096 else 4)
    options = {"num_warps": warps, "launch_pdl": early}
    return triton.compile(source, target=target, options=options)


def barriers(ptx: str) -> int:
    """Return at how many barriers all threads of a program wait, every branch taken."""
    lines = [line.strip() for line in ptx.splitlines()]
    labels = {
        found[1]: number
        for number, line in enumerate(lines)
        if (found := re.match(r"(\$\w+):", line))
    }
    loops = [
        lines[labels[found[1]] : number]
        for number, line in enumerate(lines)
        if (found := re.search(r"bra\S*\s+(\S+);", line)) and labels.get(found[1], number) < number
    ]
    within = sum("bar.sync" in line for loop in loops for line in loop)
    rounds: int = ROUNDS.value
    return sum("bar.sync" in line for line in lines) + (rounds - 1) * within


def resources(cubin: bytes) -> dict[str, int]:
    """Return what a kernel takes of a thread: registers, and bytes of the stack."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        command = [str(CUOBJDUMP), "--dump-resource-usage", file.name]
        told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = dict(re.findall(r"(REG|STACK):(\d+)", told))
    return {"registers": int(found["REG"]), "stack": int(found["STACK"])}


def main() -> None:
    """Compile and tell every kernel."""
    for card, kind in product((TURING, AMPERE, HOPPER, BLACKWELL), ("bf16", "fp32")):
        if (card, kind) == (TURING, "bf16"):
            continue  # it computes in float32
        for kernel, types, constants in kernels(kind):
            pointers = {
                name: f"*{kind}"
                for name in kernel.arg_names
                if name not in types and name.islower() and not name.endswith("stride")
                and name not in COUNTS
            }  # fmt: skip
            made = compiled(kernel, {**pointers, **types}, constants, card)
            print(json.dumps({
                "kernel": kernel.fn.__name__, "card": card, "kind": kind,
                "shared": made.metadata.shared, "barriers": barriers(made.asm["ptx"]),
            } | resources(made.asm["cubin"])))  # fmt: skip


if __name__ == "__main__":
    main()
