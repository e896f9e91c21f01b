"""Quantisation of a loaded model to int8 weights, for CPUs."""

from torch import Tensor, nn

from models.int8.linear import Int8Linear, Packed
from models.int8.null_head import Int8NullHead
from models.int8.passes import Int8Passes
from models.null_head import NullHead
from models.stack.block import Block
from models.stack.transformer import Transformer


def quantize_linears(model: nn.Module) -> None:
    """Quantise a float32 model on a CPU in place: every `nn.Linear` becomes an `Int8Linear`.

    A norm that feeds a single linear layer is merged into it. Embeddings and the final norm stay
    float32. Each `Transformer` delegates its cached passes to `Int8Passes` from then on.
    """
    stacks = []
    packed: dict[Tensor, Packed] = {}
    for module in list(model.modules()):
        if isinstance(module, Block):
            _replace_after_norm(module, "attention_norm", module.attention, "qkv", packed)
            _replace_after_norm(module, "feed_forward_norm", module.feed_forward, "gate_up", packed)
        for name, child in module.named_children():
            if isinstance(child, NullHead):
                setattr(module, name, Int8NullHead(child))
            elif isinstance(child, nn.Linear):
                setattr(module, name, Int8Linear(child, packed=packed))
        if isinstance(module, Transformer):
            stacks.append(module)
    for stack in stacks:
        stack.use_passes(Int8Passes(stack))


def _replace_after_norm(
    block: Block, norm: str, module: nn.Module, name: str, packed: dict[Tensor, Packed]
) -> None:
    """Merge a block's norm with the linear layer after it; the norm becomes the identity."""
    linear = module.get_submodule(name)
    before = block.get_submodule(norm)
    if isinstance(linear, nn.Linear) and isinstance(before, nn.RMSNorm):
        setattr(module, name, Int8Linear(linear, before, packed))
        setattr(block, norm, nn.Identity())


def is_quantized(model: nn.Module) -> bool:
    """Return whether a model was quantised by `quantize_linears`."""
    return any(isinstance(module, Int8Linear) for module in model.modules())
