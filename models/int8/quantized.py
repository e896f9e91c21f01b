"""A model whose linear layers compute with integers, for CPUs."""

from torch import nn

from models.int8.linear import Int8Linear
from models.stack.block import Block
from models.stack.transformer import Transformer


def quantize_linears(model: nn.Module) -> None:
    """Replace every `nn.Linear` inside a model, for good, and each norm that feeds but one.

    Embeddings and the last norm stay float32.
    """
    stacks = []
    for module in list(model.modules()):
        if isinstance(module, Block):
            _replace_behind_norm(module, "attention_norm", module.attention, "qkv")
            _replace_behind_norm(module, "feed_forward_norm", module.feed_forward, "gate_up")
        for name, child in module.named_children():
            if isinstance(child, nn.Linear):
                setattr(module, name, Int8Linear(child))
        if isinstance(module, Transformer):
            stacks.append(module)
    for stack in stacks:
        stack.use_integers()


def _replace_behind_norm(block: Block, norm: str, module: nn.Module, name: str) -> None:
    linear, before = module.get_submodule(name), block.get_submodule(norm)
    if isinstance(linear, nn.Linear) and isinstance(before, nn.RMSNorm):
        setattr(module, name, Int8Linear(linear, before))
        setattr(block, norm, nn.Identity())


def is_quantized(model: nn.Module) -> bool:
    """Tell whether `quantize_linears` has been at a model."""
    return any(isinstance(module, Int8Linear) for module in model.modules())
