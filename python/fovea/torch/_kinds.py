"""Which tensors are plain, so that their memory holds their values."""

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
    """Whether x is a plain tensor. The memory of other subclasses may hold anything: PyTorch's CausalBias has none.
    PyTorch's tracing tensors count as plain, and while torch.compile traces a call, it checks types itself."""
    return type(x) in PLAIN or isinstance(x, (FakeTensor, FunctionalTensor)) or torch.compiler.is_compiling()


def is_upper_left(bias: CausalBias) -> bool:
    """Whether row 0 sees key 0; if not, the last row sees the last key."""
    return bool(bias.variant == CausalVariant.UPPER_LEFT)


def own_mask(mask: Tensor) -> Tensor:
    """A plain mask. PyTorch's causal biases are expanded by rows."""
    if isinstance(mask, CausalBias):
        lower = 0 if is_upper_left(mask) else mask.seq_len_kv - mask.seq_len_q
        return torch.ones(mask.seq_len_q, mask.seq_len_kv, dtype=torch.bool, device="cpu").tril(lower)
    if not is_known(mask):
        raise InvalidArgument("attention", "mask", "a tensor of PyTorch's own class", f"a {type(mask).__name__}")
    return mask


def has_tangent(*tensors: Any) -> bool:
    """Whether any tensor is a dual number of forward-mode differentiation, whose tangent would be lost."""
    if torch.compiler.is_compiling() or torch.autograd.forward_ad._current_level < 0:
        return False
    return any(
        isinstance(x, Tensor) and torch.autograd.forward_ad.unpack_dual(x).tangent is not None for x in tensors
    )


def is_transformed() -> bool:
    """Whether this runs inside vmap, grad or another transform of torch.func."""
    return not torch.compiler.is_compiling() and torch._C._functorch.peek_interpreter_stack() is not None


__all__ = ["CausalBias", "PLAIN", "has_tangent", "is_known", "is_transformed", "is_upper_left", "own_mask"]
