"""Fovea's attention under models that call PyTorch's."""

from __future__ import annotations

import types
from typing import Any, Callable, Optional

import torch
from torch.overrides import TorchFunctionMode

from . import _sdpa

# The builtin that every import of it is, wherever and whenever it was made.
_THEIRS = torch.nn.functional.scaled_dot_product_attention


def _instead(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: Optional[float] = None,
    enable_gqa: bool = False,
) -> Any:
    """Fovea's where it serves the call, PyTorch's where it does not: for other devices, and for its own errors."""
    if _sdpa.refusal(query, key, value, attn_mask, dropout_p, is_causal, enable_gqa) is None:
        return _sdpa.run(query, key, value, attn_mask, dropout_p, is_causal, scale)
    return _THEIRS(
        query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
    )


def _multi_head_over_fovea() -> Callable[..., Any]:
    """PyTorch's multi_head_attention_forward, which `torch.nn.MultiheadAttention` and the transformer layers
    call, with another scaled_dot_product_attention in its sight.

    A mode is off while it answers for a function, and this one takes part in the protocol of modes as a whole:
    what it calls inside would never be seen.
    """
    theirs = torch.nn.functional.multi_head_attention_forward
    sight = {
        **theirs.__globals__,
        "scaled_dot_product_attention": _instead,
        "has_torch_function": lambda tensors: False,
    }
    ours = types.FunctionType(theirs.__code__, sight, theirs.__name__, theirs.__defaults__, theirs.__closure__)
    ours.__kwdefaults__ = theirs.__kwdefaults__
    return ours


_INSTEAD: dict[Any, Callable[..., Any]] = {
    _THEIRS: _instead,
    torch.nn.functional.multi_head_attention_forward: _multi_head_over_fovea(),
}


class patched(TorchFunctionMode):
    """`with fovea.torch.patched():` puts Fovea's attention under a model that was never told.

    Inside, each call of `torch.nn.functional.scaled_dot_product_attention`, by whatever name it was imported
    and whenever, runs `fovea.torch.scaled_dot_product_attention`: in your own modules, in
    `torch.nn.MultiheadAttention` and the transformer layers (which then do not take their fused inference
    path), and in transformers models with attn_implementation="sdpa". What Fovea does not serve (other devices,
    nested tensors, wrong arguments) goes to PyTorch's as before.

    Nothing of PyTorch is overwritten: it is a mode, of this thread alone (another thread, `DataParallel`'s say,
    enters its own), which may nest, ends with its block however that ends, and which torch.compile follows.
    Recomputation in the backward pass (`torch.utils.checkpoint`) calls attention again: call `backward` inside.
    Attention weights (`need_weights=True`) are computed by PyTorch without this function, there as here.

    >>> import torch, fovea.torch
    >>> layer = torch.nn.MultiheadAttention(8, 2, batch_first=True)
    >>> x = torch.ones(1, 4, 8)
    >>> with fovea.torch.patched():
    ...     layer(x, x, x, need_weights=False)[0].shape
    torch.Size([1, 4, 8])
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _INSTEAD.get(func, func)(*args, **(kwargs or {}))
