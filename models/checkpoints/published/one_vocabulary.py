"""The `hf` branch of ecker/vall-e: a plain Llama with one vocabulary for all kinds of tokens.

Its 17,702 rows are phonemes, levels, languages, codes and so on, one after another; the head has
the same rows. They are split into the tensors of the layout `ar+nar-len`. Heads have no biases.
"""

import json
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from models.checkpoints.files import CheckpointError, check_tensors

EMBEDDINGS = "model.embed_tokens.weight"
HEAD = "lm_head.weight"
_LEVELS = 8
_CODES = 1024
_ROWS = {
    "text_emb.weight": 256,
    "rvq_l_emb.weight": _LEVELS,
    "langs_emb.weight": 6,
    "tasks_emb.weight": 9,
    "len_emb.weight": 11,
    "tones_emb.weight": 1,
    "sep": 1,
    **{f"proms_emb.embeddings.{level}.weight": _CODES for level in range(_LEVELS)},
    "resps_emb.embeddings.0.weight": _CODES + 1,
    **{f"resps_emb.embeddings.{level}.weight": _CODES for level in range(1, _LEVELS)},
    f"resps_emb.embeddings.{_LEVELS}.weight": _CODES + 1,  # the last row is the mask
}
"""The tables that the vocabulary consists of, in their order, and their rows."""

_HEADS = {
    **{level: f"resps_emb.embeddings.{level}.weight" for level in range(_LEVELS + 1)},
    _LEVELS + 1: "text_emb.weight",
    _LEVELS + 2: "len_emb.weight",
}
"""The table whose rows each head has."""

ROWS = sum(_ROWS.values())


def is_one_vocabulary(tensors: Mapping[str, Tensor]) -> bool:
    """Return whether the tensors are those of a plain Llama with an untied head."""
    return HEAD in tensors and "sep" not in tensors


def check_description(path: Path) -> int | None:
    """Return the number of heads of the ``config.json`` beside the file; None without one.

    Raises CheckpointError if it describes another architecture.
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


def split_vocabulary(tensors: Mapping[str, Tensor], source: str) -> dict[str, Tensor]:
    """Split the tensors into those of the layout `ar+nar-len`.

    A vocabulary of another size is refused: its rows cannot be assigned.
    """
    parts = {name: part for name, part in tensors.items() if name.startswith("model.")}
    stack = parts.keys() - {EMBEDDINGS}
    width = tensors[HEAD].shape[1:]
    check_tensors(tensors, dict.fromkeys((EMBEDDINGS, HEAD), (ROWS, *width)), source, ignored=stack)
    embeddings = parts.pop(EMBEDDINGS)
    head = tensors[HEAD]
    counts = list(_ROWS.values())
    parts |= zip(_ROWS, torch.split(embeddings, counts), strict=True)
    parts["sep"] = parts["sep"][0]
    rows = dict(zip(_ROWS, torch.split(head, counts), strict=True))
    for number, name in _HEADS.items():
        # The head has a row of the mask, which was never trained.
        kept = _CODES if number == _LEVELS else len(rows[name])
        parts[f"classifiers.proj.{number}.weight"] = rows[name][:kept]
    return parts
