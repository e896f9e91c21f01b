"""The `hf` branch of ecker/vall-e: a plain Llama with one vocabulary for all kinds of tokens.

Its 17,702 rows are phonemes, levels, languages, codes and so on, one after another; the head has
the same rows. They are split into the tensors of the layout `ar+nar-len`. Heads have no biases.
"""

import json
from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from models.checkpoints.files import CheckpointError

PHONEMES, LEVELS, LANGUAGES, TASKS, DIGITS, TONES, CODES = 256, 8, 6, 9, 11, 1, 1024
ROWS = 17_702


def is_one_vocabulary(tensors: Mapping[str, Tensor]) -> bool:
    """Return whether the tensors are those of a plain Llama with an untied head."""
    return "lm_head.weight" in tensors and "sep" not in tensors


def check_description(path: Path) -> int | None:
    """Check the ``config.json`` beside the file; return its number of heads, None without the file.

    Raises:
        CheckpointError: It describes another architecture.
    """
    if not path.is_file():
        return None
    try:
        described = json.loads(path.read_bytes())
        heads = described["num_attention_heads"]
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{path} is no description of a Llama: {error!r}") from error
    wanted = {
        "hidden_act": "gelu",
        "rms_norm_eps": 1e-6,
        "rope_theta": 10_000.0,
        "rope_scaling": None,
        "num_key_value_heads": heads,
        "tie_word_embeddings": False,
        "vocab_size": ROWS,
    }
    for name, value in wanted.items():
        if (found := described.get(name, value)) != value:
            raise CheckpointError(f"{path}: {name} is {found!r}, expected {value!r}")
    if type(heads) is not int or heads < 1:
        raise CheckpointError(f"{path}: num_attention_heads is {heads!r}")
    return heads


def split(tensors: Mapping[str, Tensor], source: str) -> dict[str, Tensor]:
    """Split the tensors, which may be on the device "meta", into those of the layout `ar+nar-len`.

    Raises:
        CheckpointError: The vocabulary has another size, so rows cannot be assigned.
    """
    parts = {name: part for name, part in tensors.items() if name.startswith("model.")}
    embeddings = parts.pop("model.embed_tokens.weight", None)
    if embeddings is None:
        raise CheckpointError(f"{source}: tensor model.embed_tokens.weight is missing")
    head = tensors["lm_head.weight"]
    for name, table in (("model.embed_tokens.weight", embeddings), ("lm_head.weight", head)):
        if table.ndim != 2 or len(table) != ROWS:
            raise CheckpointError(
                f"{source}: tensor {name} has shape {list(table.shape)}, expected {ROWS} rows:"
                " phonemes, levels, languages, tasks and codes of vall-e's one vocabulary"
            )
    unknown = sorted(
        tensors.keys() - parts.keys() - {"model.embed_tokens.weight", "lm_head.weight"}
    )
    if unknown:
        raise CheckpointError(f"{source}: tensor {unknown[0]} is unknown ({len(unknown)} in all)")
    for name, (start, count) in _table_rows().items():
        parts[name] = embeddings[start : start + count]
    parts["sep"] = parts["sep"][0]
    for number, (start, count) in _head_rows().items():
        parts[f"classifiers.proj.{number}.weight"] = head[start : start + count]
    return parts


def _starts() -> dict[str, int]:
    """Return the first row of each kind."""
    counts = {
        "phonemes": PHONEMES,
        "levels": LEVELS,
        "languages": LANGUAGES,
        "tasks": TASKS,
        "digits": DIGITS,
        "tones": TONES,
        "separator": 1,
        "prompt": LEVELS * CODES,
        "ar": CODES + 1,
        "nar": (LEVELS - 1) * CODES,
        "masked": CODES + 1,
    }
    starts, start = {}, 0
    for name, count in counts.items():
        starts[name] = start
        start += count
    return starts


def _table_rows() -> dict[str, tuple[int, int]]:
    """Return first row and number of rows of each embedding table."""
    at = _starts()
    rows = {
        "text_emb.weight": (at["phonemes"], PHONEMES),
        "rvq_l_emb.weight": (at["levels"], LEVELS),
        "langs_emb.weight": (at["languages"], LANGUAGES),
        "tasks_emb.weight": (at["tasks"], TASKS),
        "len_emb.weight": (at["digits"], DIGITS),
        "tones_emb.weight": (at["tones"], TONES),
        "sep": (at["separator"], 1),
        "resps_emb.embeddings.0.weight": (at["ar"], CODES + 1),
        f"resps_emb.embeddings.{LEVELS}.weight": (at["masked"], CODES + 1),
    }
    for level in range(LEVELS):
        start = at["prompt"] + level * CODES
        rows[f"proms_emb.embeddings.{level}.weight"] = (start, CODES)
    for level in range(1, LEVELS):
        start = at["nar"] + (level - 1) * CODES
        rows[f"resps_emb.embeddings.{level}.weight"] = (start, CODES)
    return rows


def _head_rows() -> dict[int, tuple[int, int]]:
    """Return first row and number of rows of each head."""
    at = _starts()
    rows = {level: (at["nar"] + (level - 1) * CODES, CODES) for level in range(1, LEVELS)}
    return rows | {
        0: (at["ar"], CODES + 1),
        LEVELS: (at["masked"], CODES),  # the row of the mask itself was never trained
        LEVELS + 1: (at["phonemes"], PHONEMES),
        LEVELS + 2: (at["digits"], DIGITS),
    }
