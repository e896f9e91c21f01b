"""What a step and a chunk of sound cost by their operators, and what an H100 should make of them.

    python -m lab.benchmarks.card.step_cost --out step_cost.json
    python -m lab.benchmarks.card.step_cost --layout vall-e-x

Needs neither a GPU nor time: the step of `app.engine.ar.graph_runner`, and chunks of sound,
operator by operator and of `app.engine.nar.graph_runner`, run once on a device whose tensors have
shapes and no contents, at the published size in bfloat16. Every operator is counted with the bytes
that it reads and writes and the products that it makes. A kernel takes at least `KERNEL_S`, its
bytes over the card's bandwidth, and its products over the card's rate, whichever is longest; a step
is the sum. A kernel of our own is one operator, of which `FUSED_COSTS` tells what it moves; "torch"
is the same step without them.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from app.engine.ar.graph_runner import GraphRunner
from app.engine.memory import make_pool
from app.engine.nar.graph_runner import ChunkSizes, NarGraphRunner
from app.engine.nar.state import NarState
from app.engine.utterance import UtteranceSpec
from gpu.graphs import eager
from gpu.kernels import FUSED, TORCH, Kernels
from lab.benchmarks.harness.report import TableRow, Target, conclude, machine, print_table
from lab.benchmarks.model.published import published_config, vallex_sizes
from models.checkpoints.sources import SpeechModel
from models.checkpoints.vallex.load import TrainerSettings, vallex_config
from models.codecs.encodec import Encodec
from models.config import BOS_ID, EOS_ID, CodecConfig, KvCacheDtype, MaskKind, ModelConfig
from models.cuda.kernels.sharing import FEW, PAGE, sharing
from models.placement import prepare_for
from models.prefill_graphs import PrefillGraphRunner
from models.prefix_cache import PrefixCache, SlotPrefix, VoiceKey, one_by_one
from models.valle import Valle
from samplers.knobs.params import SamplingParams
from samplers.plain import WINDOW as COUNTED_CODES

META = torch.device("meta")
BANDWIDTH = 3.0e12
"""Bytes a second that a copy moves on an H100."""
RATE = 798e12
"""Operations a second of its products in bfloat16."""
KERNEL_S = 2e-6
"""What a small kernel takes within a graph."""
PRODUCT_BANDWIDTH, PRODUCT_S, FLOAT_RATE = 2.4e12, 1.7e-6, 50e12
"""Of a product of few rows, estimated: bytes a second once it runs, and what it takes to get there;
operations a second in float32, without TensorFloat-32."""

DRAW_S = 8e-6
"""What the sample of one row takes by its waits, estimated: 137 barriers where two filters are."""

LAUNCH_S = 5e-6
"""What a host takes to launch a kernel."""

PREFIX, FRAMES, CHUNK, PROMPT = 325, 750, 15, 225
CHUNK_COLUMNS, CHUNK_LAUNCHES = 1024, 3  # a table to the device, a graph, a table from it
CAPTURED_CHUNKS = (
    (1, 15, True), (4, 15, True), (16, 15, True), (1, 60, True), (4, 60, True), (16, 60, True),
    (1, 15, False), (16, 60, False),
)  # fmt: skip
"""Streams, frames of a chunk, and kind of those that are counted."""
WINDOW = {"nar_window_frames": 30, "nar_left_context_frames": 75, "nar_lookahead_frames": 15}
WHOLE_FRAMES = 375
"""Of an utterance of which the passes see all."""
SYMBOLS = 100
"""Of a text, with its marks of begin and end."""
FRAME_RATE_HZ = 75
GOALS: Mapping[tuple[KvCacheDtype, int], float] = {
    ("auto", 1): 3_000, ("auto", 32): 35_000, ("int8", 32): 35_000,
}  # fmt: skip
"""Codes a second that were asked, by the number format of keys and values and by streams."""

FASTEST = "fused", True
"""Of what they were asked."""

CAPTURED: Mapping[str, Sequence[bool]] = {"torch": (False,), "fused": (True, False)}
"""Whether the sample of plain rows is captured with a step's forward pass."""

KERNELS: Mapping[str, Kernels] = {"torch": TORCH, "fused": FUSED}
"""Which kernels are fused, by name of the variant."""

LayoutName = Literal["ar+nar-len", "vall-e-x"]
"""Of which published model the sizes are."""

MovingCost = tuple[int, float]
"""Bytes that a kernel moves, and operations of its products."""

_ALLOCATIONS = frozenset({"empty", "empty_like", "new_empty", "empty_strided"})
_LOOKUPS = frozenset({"embedding", "index_select", "gather", "index"})
_WRITES = frozenset({"index_copy_", "scatter_"})
_PRODUCTS = frozenset({"mm", "addmm", "addmm_", "bmm", "linear", "project", "add_product"})


@dataclass
class Counted(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the kernels that are queued within the context.

    Attributes:
        kernels: How many.
        bytes: That they read and write.
        seconds: That they take, each at least what a kernel does.
        bound_s: That the card needs for their bytes and operations alone.
        estimate_s: As `seconds`, with products as slow as of few rows.
    """

    kernels: int = 0
    bytes: int = 0
    seconds: float = 0.0
    bound_s: float = 0.0
    estimate_s: float = 0.0
    by_name: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def note(self, name: str, moved: int, operations: float, rate: float = RATE) -> None:
        """Count a kernel by its bytes and operations, of which it makes so many a second."""
        self.kernels += 1
        self.bytes += moved
        self.by_name[name] = self.by_name.get(name, 0) + 1
        bound_s = max(moved / BANDWIDTH, operations / RATE)
        self.bound_s += bound_s
        self.seconds += max(KERNEL_S, bound_s)
        is_product = name in _PRODUCTS and operations > 0
        slow_s = moved / PRODUCT_BANDWIDTH + PRODUCT_S if is_product else bound_s
        least_s = DRAW_S if name == "sample" else KERNEL_S
        self.estimate_s += max(least_s, slow_s, operations / rate)

    def __torch_dispatch__(
        self,
        func: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        given, made = (_tensors(part) for part in ((args, kwargs), result))
        held = {one.untyped_storage()._cdata for one in given}
        fresh = any(one.untyped_storage()._cdata not in held for one in made)
        if func.namespace == "valle":
            for moved, operations in FUSED_COSTS[name](args, made):
                self.note(name, moved, operations)
        elif name not in _ALLOCATIONS and (fresh or func._schema.is_mutable):
            if name == "addmm" and given[0].ndim == 2:
                # CUDA's sums in place: what is added is copied before.
                self.note("copy_", 2 * _size(made[0]), 0.0)
            moved, operations = _moved(name, given, made), _operations(name, given, made)
            narrow = bool(made) and made[0].itemsize < 4
            self.note(name, moved, operations, RATE if narrow else FLOAT_RATE)
        return result


class _Attention(TorchFunctionMode):
    """Counts fused attention as the one kernel that it is on a GPU."""

    def __init__(self, counted: Counted) -> None:
        super().__init__()
        self._counted = counted

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if func is not F.scaled_dot_product_attention:
            return func(*args, **(kwargs or {}))
        query, keys, values = args[:3]
        made = torch.empty_like(query)
        moved = sum(map(_size, (query, keys, values, made)))
        self._counted.note("attention", moved, 4 * query.numel() * keys.shape[-2])
        return made


def _tensors(part: Any) -> list[Tensor]:
    return [one for one in tree_leaves(part) if isinstance(one, Tensor)]


def _size(tensor: Tensor) -> int:
    """Return the bytes of a tensor; what is expanded counts once."""
    return min(tensor.numel() * tensor.element_size(), tensor.untyped_storage().nbytes())


def _moved(name: str, given: Sequence[Tensor], made: Sequence[Tensor]) -> int:
    if name in _LOOKUPS:  # of the table only what is looked up
        return 2 * sum(map(_size, made))
    if name in _WRITES:
        return 2 * _size(given[-1])
    return sum(map(_size, (*given, *made)))


def _operations(name: str, given: Sequence[Tensor], made: Sequence[Tensor]) -> float:
    if name not in _PRODUCTS:
        return 0.0
    factor = given[-2] if name.startswith("addmm") else given[0]
    return 2.0 * made[0].numel() * factor.shape[-1]


def _whole_cost(args: Sequence[Any], made: Sequence[Tensor]) -> list[MovingCost]:
    """Return the cost of a kernel that reads all that it is given."""
    return [(sum(map(_size, (*_tensors(args), *made))), 0.0)]


def _project_cost(args: Sequence[Any], made: Sequence[Tensor]) -> list[MovingCost]:
    """Return the cost of a product of few rows, or of norm, product and gate."""
    x, weight, gain, _, activation = args[:5]
    operations = 2.0 * len(x) * weight.numel()
    if len(x) <= FEW:
        return [(sum(map(_size, (x, weight, gain, *made))), operations)]
    wide = len(x) * len(weight) * x.itemsize
    costs = [(2 * _size(x) + _size(gain), 0.0), (_size(x) + _size(weight) + wide, operations)]
    return [*costs, (wide + _size(made[0]), 0.0)] if activation else costs


def _add_cost(args: Sequence[Any], _: Sequence[Tensor]) -> list[MovingCost]:
    total, x, weight = args[:3]
    moved = 2 * _size(total) + _size(x) + _size(weight)
    return [(moved, 2.0 * len(x) * weight.numel())]


def _store_cost(args: Sequence[Any], made: Sequence[Tensor]) -> list[MovingCost]:
    """Return the cost of a kernel that writes only new entries of the cache."""
    qkv, rotations, keys = args[:3]
    stored = 2 * len(qkv) * keys[0].numel() * keys.element_size()
    return [(stored + sum(map(_size, (qkv, rotations, *made))), 0.0)]


def _attend_cost(args: Sequence[Any], made: Sequence[Tensor]) -> list[MovingCost]:
    """Return the cost of attention, of all columns, and of combining shares of them."""
    queries, keys, _, seen, pages = args
    (sequences, count), (kv_heads, width) = seen.shape, keys.shape[1:]
    head_dim = queries.shape[-1]
    columns = pages.shape[1] * PAGE
    group = queries.shape[1] // kv_heads
    read = 2 * sequences * kv_heads * columns * width * keys.element_size()
    operations = 4.0 * queries.numel() * columns
    shared = sharing(count * group, sequences, kv_heads, columns, queries.dtype)
    # Queries that do not fit a program have others read the same keys again.
    own = 2 * _size(made[0]) + read * shared.tiles
    if shared.shares == 1:
        return [(own, operations)]
    parts = 4 * queries.numel() // head_dim * (head_dim + 2) * shared.shares
    return [(own + parts, operations), (parts + _size(made[0]), 0.0)]


def _sample_cost(args: Sequence[Any], _: Sequence[Tensor]) -> list[MovingCost]:
    logits, numbers, avoid, knobs, codes = args[:5]
    read = [logits, logits, numbers, avoid, knobs, codes[:, :COUNTED_CODES]]
    return [(sum(one.numel() * one.element_size() for one in read), 0.0)]


FUSED_COSTS: Mapping[str, Callable[[Sequence[Any], Sequence[Tensor]], list[MovingCost]]] = {
    "norm": _whole_cost, "project": _project_cost, "add_product": _add_cost,
    "store": _store_cost, "attend": _attend_cost, "sample": _sample_cost,
}  # fmt: skip
"""Of the kernels of `models.cuda.kernels`."""


def layout_config(layout: LayoutName, *, layers: int, width: int) -> ModelConfig:
    """Return the configuration of a layout, at a size."""
    if layout == "ar+nar-len":
        return published_config(layers=layers, width=width)
    sizes = vallex_sizes(layers=layers, width=width)
    return vallex_config(sizes, TrainerSettings(), Path("no contents"))


def meta_model(*, layers: int, width: int, layout: LayoutName = "ar+nar-len") -> Valle:
    """Return a model of a size in bfloat16, without contents."""
    with META:
        model = Valle(layout_config(layout, layers=layers, width=width)).requires_grad_(False)
    return prepare_for(META, model, torch.bfloat16)


class _FrameBatch(GraphRunner):
    """One whose bursts are of one frame, so that a burst costs what a frame does."""

    stride = 1


def counted_step(
    model: Valle, streams: int, columns: int, held: KvCacheDtype = "auto", *, draws: bool = True
) -> Counted:
    """Count a captured step of a model without contents.

    Args:
        model: From `meta_model`.
        streams: Rows, all in use.
        columns: Positions of each.
        held: Number format of keys and values.
        draws: Whether a kernel samples the rows; else the forward pass alone is counted.
    """
    batch = _FrameBatch(model, make_pool(model, 1 << 30, held), streams, columns, eager)
    counted = Counted()
    with torch.inference_mode(), _Attention(counted), counted:
        (batch._graphs.sampling if draws else batch._graphs.feeding)[streams]()
    assert batch.cache.max_length == columns
    return counted


def meta_speech(
    *,
    layers: int,
    width: int,
    mask: MaskKind = "block_causal",
    layout: LayoutName = "ar+nar-len",
) -> SpeechModel:
    """Return a model whose NAR levels have a mask, with EnCodec, without contents."""
    config = layout_config(layout, layers=layers, width=width)
    if mask != config.nar_mask:
        segments = ("lang", "level", "prom", "phn", "resp")
        config = config.model_copy(update={"nar_mask": mask, "segments": segments})
    with META:
        model, codec = Valle(config), Encodec(CodecConfig(pad_mode="constant"))
    codec.requires_grad_(False)
    model = prepare_for(META, model.requires_grad_(False), torch.bfloat16)
    return SpeechModel("no contents", "", Path(), model, codec, None)


def counted_chunk(speech: SpeechModel, frames: int) -> tuple[Counted, Counted]:
    """Count the first chunk of an utterance operator by operator: NAR levels, and codec.

    Args:
        speech: Of `meta_speech`.
        frames: Of the chunk.
    """
    model, codec, config = speech.model, speech.codec, speech.model.config
    codes = torch.zeros(frames, config.levels, dtype=torch.int64, device=META)
    prompt = torch.zeros(config.max_prompt_frames, config.levels, dtype=torch.int64, device=META)
    inputs = UtteranceSpec(
        [BOS_ID, *[EOS_ID + 1] * (SYMBOLS - 2), EOS_ID], SamplingParams(), 0, 0, FRAMES
    )
    codebooks = torch.zeros(config.levels, config.codes, 128, device=META)
    levels, sound = Counted(), Counted()
    with torch.inference_mode():
        nar = NarState(model, codebooks, replace(inputs, prompt=prompt), PrefixCache(model))
        with _Attention(levels), levels:
            for work in nar.cut(torch.zeros(frames, dtype=torch.int64), ended=False):
                nar.sample(work)
        stream = codec.stream()
        with sound:
            stream.push(codes)
    return levels, sound


def counted_chunks(
    speech: SpeechModel, streams: int, frames: int, columns: int, *, light: bool
) -> Counted:
    """Count one captured function of sound: a chunk of each of some streams.

    Args:
        speech: Of `meta_speech`.
        streams: Rows, all in use.
        frames: Of each chunk.
        columns: Positions attended over.
        light: Whether levels are greedy and not guided.
    """
    sizes = ChunkSizes(rows=(streams,), columns=columns)
    captured = NarGraphRunner(speech, make_pool(speech.model, 1 << 30), eager, sizes)
    counted = Counted()
    with torch.inference_mode(), _Attention(counted), counted:
        captured._replays[streams, frames, light]()
    return counted


def counted_prefixes(
    speech: SpeechModel, levels: Sequence[int], *, known: bool, captured: bool
) -> tuple[int, Counted]:
    """Return the launches of what an utterance begins with, and what they cost.

    Args:
        speech: Of `meta_speech`.
        levels: Whose prefixes are read, in pages.
        known: Whether the voice's prompt was read before.
        captured: Whether they are read in captured functions.
    """
    model, config = speech.model, speech.model.config
    pool, replays = make_pool(model, 1 << 30), list[Callable[[], object]]()

    def capture(function: Callable[[], object], **_: Any) -> Callable[[], None]:
        return lambda: replays.append(function)

    read = PrefillGraphRunner(model, pool, levels, capture) if captured else one_by_one(model)
    prefixes = PrefixCache(model, new_cache=pool.new_cache)
    prompt = torch.zeros(config.max_prompt_frames, config.levels, dtype=torch.int64, device=META)
    ids, key = [BOS_ID, *[EOS_ID + 1] * (SYMBOLS - 2), EOS_ID], VoiceKey(None, "a voice", 0)
    wanted = [
        SlotPrefix(model.prefix(ids, level, prompt=prompt), slot, key)
        for slot, level in enumerate(levels)
    ]
    room = len(wanted[0].prefix) + WHOLE_FRAMES
    if known:
        prefixes.read(wanted, pool.new_cache(len(wanted), room), read)
    replays.clear()
    launched, played = Counted(), Counted()
    with torch.inference_mode(), _Attention(launched), launched:
        prefixes.read(wanted, pool.new_cache(len(wanted), room), read)
    with torch.inference_mode(), _Attention(played), played:
        for replay in replays:
            replay()
    return launched.kernels + len(replays), played if captured else launched


def prefix_costs(*, layers: int = 12, width: int = 1024) -> list[TableRow]:
    """Return what the prefixes of an utterance take, launched one by one and captured."""
    speech = meta_speech(layers=layers, width=width)
    nar_levels = range(1, speech.model.config.levels)
    rows: list[TableRow] = []
    for (name, levels), known, captured in product(
        (("level 0", [0]), ("NAR levels", nar_levels)), (False, True), (False, True)
    ):
        launches, found = counted_prefixes(speech, levels, known=known, captured=captured)
        rows.append({
            "prefixes of": name,
            "voice": "known" if known else "new",
            "read": "recorded" if captured else "one by one",
            "launches": launches,
            "MB": found.bytes / 1e6,
            "us of the host": launches * LAUNCH_S * 1e6,
            "us of the card": found.estimate_s * 1e6,
        })
    return rows


def counted_whole(speech: SpeechModel, frames: int, knobs: Mapping[str, int]) -> Counted:
    """Count the first window of an utterance operator by operator.

    Args:
        speech: Of `meta_speech`, with a `full` mask.
        frames: That are known.
        knobs: Of the window.
    """
    model, config = speech.model, speech.model.config
    prompt = torch.zeros(PROMPT, config.levels, dtype=torch.int64)  # its codes may be read
    params = SamplingParams.model_validate(knobs)
    inputs = UtteranceSpec(
        [BOS_ID, *[EOS_ID + 1] * (SYMBOLS - 2), EOS_ID], params, 0, 0, FRAMES, prompt=prompt
    )
    codebooks = torch.zeros(config.levels, config.codes, 128, device=META)
    counted = Counted()
    with torch.inference_mode(), _Attention(counted), counted:
        levels = NarState(model, codebooks, inputs, PrefixCache(model))
        levels.sample(levels.cut(torch.zeros(frames, dtype=torch.int64), ended=not knobs)[0])
    return counted


def window_costs(
    *, layers: int = 12, width: int = 1024, layout: LayoutName = "ar+nar-len"
) -> list[TableRow]:
    """Return what a window takes where all frames see each other."""
    speech = meta_speech(layers=layers, width=width, mask="full", layout=layout)
    rows: list[TableRow] = []
    for heard, seen, knobs in ((30, 45, WINDOW), (WHOLE_FRAMES, WHOLE_FRAMES, {})):
        part = counted_whole(speech, seen, knobs)
        spent_s = max(part.seconds, part.kernels * LAUNCH_S)
        name = f"one by one, {seen} frames seen"
        rows.append(_chunk_row(name, 1, heard, part.kernels, part, spent_s))
    return rows


def chunk_costs(
    *, layers: int = 12, width: int = 1024, variants: Mapping[str, Kernels] = KERNELS
) -> list[TableRow]:
    """Return what a chunk takes: operator by operator, and of captured ones a chunk's share."""
    speech = meta_speech(layers=layers, width=width)
    rows: list[TableRow] = []
    parts = counted_chunk(speech, CHUNK)
    for name, part in zip(("NAR levels", "codec"), parts, strict=True):
        spent_s = max(part.seconds, part.kernels * LAUNCH_S)
        rows.append(_chunk_row(f"{name}, one by one", 1, CHUNK, part.kernels, part, spent_s))
    for variant, (streams, frames, light) in product(variants, CAPTURED_CHUNKS):
        speech.model.transformer.kernels = variants[variant]
        found = counted_chunks(speech, streams, frames, CHUNK_COLUMNS, light=light)
        name = f"{variant}, recorded, {'light' if light else 'full'}"
        rows.append(_chunk_row(name, streams, frames, CHUNK_LAUNCHES, found, found.seconds))
    return rows


def _chunk_row(
    name: str, streams: int, frames: int, launches: int, found: Counted, spent_s: float
) -> TableRow:
    """Return a row; kernels and the like are those of each of the streams."""
    return {
        "chunk": name,
        "streams": streams,
        "frames": frames,
        "launches": launches,
        "kernels of each": found.kernels / streams,
        "MB of each": found.bytes / 1e6 / streams,
        "us of each": spent_s * 1e6 / streams,
        "s of sound a second": streams * frames / FRAME_RATE_HZ / spent_s,
    }


def step_costs(
    *,
    layers: int = 12,
    width: int = 1024,
    streams: Sequence[int] = (1, 8, 32, 128),
    variants: Mapping[str, Kernels] = KERNELS,
    layout: LayoutName = "ar+nar-len",
) -> list[TableRow]:
    """Return a row for each variant, number of streams and captured sample."""
    model, rows = meta_model(layers=layers, width=width, layout=layout), list[TableRow]()
    goals = GOALS if layout == "ar+nar-len" else {}
    captured: list[tuple[str, bool, KvCacheDtype]] = [
        (name, draws, "auto") for name in variants for draws in CAPTURED[name]
    ]
    captured += [("fused", True, "int8")] if "fused" in variants else []
    for variant, draws, held in captured:
        model.transformer.kernels = variants[variant]
        for count in streams:
            found = counted_step(model, count, PREFIX + FRAMES, held, draws=draws)
            rows.append({
                "kernels of": variant,
                "streams": count,
                "keys and values": "8 bits" if held == "int8" else "bfloat16",
                "sample": "recorded" if draws else "not recorded",
                "kernels in the graph": found.kernels,
                "MB": found.bytes / 1e6,
                "us": found.estimate_s * 1e6,
                "codes/s": count / found.estimate_s,
                "codes/s at most": count / found.bound_s,
                "asked": goals.get((held, count), "") if (variant, draws) == FASTEST else "",
            })
    return rows


def targets(rows: Sequence[TableRow]) -> list[Target]:
    """Return the rates that were asked of an H100, against those expected."""
    return [
        Target(
            f"expected codes/s, {row['streams']} streams, {row['keys and values']}",
            row["codes/s"], f">= {row['asked']:g}",
            row["codes/s"] >= row["asked"],
        )
        for row in rows
        if row["asked"]
    ]  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="JSON file")
    parser.add_argument("--layout", choices=get_args(LayoutName), default="ar+nar-len")
    args = parser.parse_args(arguments)
    rows = step_costs(layout=args.layout)
    beside = {"window": window_costs(layout=args.layout)}
    if args.layout == "ar+nar-len":  # the other has no chunks, and no prefix that texts share
        beside |= {"chunk": chunk_costs(), "prefixes": prefix_costs()}
    for table in beside.values():
        print_table(table)
        print()
    conclude(rows, targets(rows), args.out, machine(), beside)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
