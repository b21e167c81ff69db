"""Which tensors are what their memory says."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.nn.attention.bias import CausalBias, CausalVariant

from .._errors import InvalidArgument

PLAIN = (Tensor, torch.nn.Parameter)


def is_known(x: Any) -> bool:
    """Not so for subclasses of others, whose memory may hold anything: a CausalBias of PyTorch has none. What
    PyTorch traces with stands for a plain tensor, and while torch.compile follows a call, it sees to types."""
    return type(x) in PLAIN or isinstance(x, (FakeTensor, FunctionalTensor)) or torch.compiler.is_compiling()


def is_upper_left(bias: CausalBias) -> bool:
    """Row 0 sees key 0. Otherwise the last row sees the last key."""
    return bool(bias.variant == CausalVariant.UPPER_LEFT)


def own_mask(mask: Tensor) -> Tensor:
    """A mask that is what its memory says: row by row, as PyTorch's causal biases count."""
    if isinstance(mask, CausalBias):
        lower = 0 if is_upper_left(mask) else mask.seq_len_kv - mask.seq_len_q
        return torch.ones(mask.seq_len_q, mask.seq_len_kv, dtype=torch.bool, device="cpu").tril(lower)
    if not is_known(mask):
        raise InvalidArgument("attention", "mask", "a tensor of PyTorch's own class", f"a {type(mask).__name__}")
    return mask


def has_tangent(*tensors: Any) -> bool:
    """Is any a dual number of forward-mode differentiation, which would be lost?"""
    if torch.compiler.is_compiling() or torch.autograd.forward_ad._current_level < 0:
        return False
    return any(
        isinstance(x, Tensor) and torch.autograd.forward_ad.unpack_dual(x).tangent is not None for x in tensors
    )


def is_transformed() -> bool:
    """Inside vmap, grad or another transform of torch.func."""
    return not torch.compiler.is_compiling() and torch._C._functorch.peek_interpreter_stack() is not None


__all__ = ["CausalBias", "PLAIN", "has_tangent", "is_known", "is_transformed", "is_upper_left", "own_mask"]
