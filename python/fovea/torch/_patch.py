"""Fovea's attention under models that call PyTorch's."""

from __future__ import annotations

import types
from typing import Any, Callable, Optional

import torch
from torch.overrides import TorchFunctionMode

from . import _checkpoint, _sdpa
from ._kinds import CausalBias, has_tangent, is_transformed

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
    tensors = (query, key, value, attn_mask)
    if (
        not is_transformed()
        and _sdpa.refusal(*tensors, dropout_p, is_causal, scale, enable_gqa) is None
        and _takes_mask(query, attn_mask)
        and not has_tangent(*tensors)
    ):
        return _sdpa.run(query, key, value, attn_mask, dropout_p, is_causal, scale)
    return _THEIRS(
        query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
    )


def _takes_mask(query: Any, mask: Any) -> bool:
    """Would PyTorch take a mask of this dtype? Autocast makes all of one, but f64."""
    if mask is None or isinstance(mask, CausalBias) or mask.dtype in (torch.bool, query.dtype):
        return True
    if torch.is_autocast_enabled("cpu"):
        return torch.float64 not in (mask.dtype, query.dtype)
    return mask.dtype == torch.float32


def _multi_head_over_fovea() -> Callable[..., Any]:
    """PyTorch's multi_head_attention_forward, which `torch.nn.MultiheadAttention` and the transformer layers
    call, with another scaled_dot_product_attention in its sight.

    A mode is off while it answers for a function, and this one takes part in the protocol of modes as a whole:
    what it calls inside would never be seen.
    """
    return _with(
        torch.nn.functional.multi_head_attention_forward,
        scaled_dot_product_attention=_instead,
        has_torch_function=lambda tensors: False,
    )


def _with(theirs: Callable[..., Any], **seen: Any) -> Callable[..., Any]:
    """A function of PyTorch's that sees something else by these names."""
    sight = {**theirs.__globals__, **seen}
    ours = types.FunctionType(theirs.__code__, sight, theirs.__name__, theirs.__defaults__, theirs.__closure__)
    ours.__kwdefaults__ = theirs.__kwdefaults__
    return ours


_engine: Any = getattr(torch.autograd, "_engine_run_backward", None)


def _engine_inside(*args: Any, **kwargs: Any) -> Any:
    """The backward pass under a mode, for the one of `patched` is off where it answers for `backward` and `grad`:
    what calls the forward functions again there must get the same of them."""
    with _recomputing():
        return _engine(*args, **kwargs)


_backward = _with(torch.autograd.backward, _engine_run_backward=_engine_inside)


def _tensor_backward(
    tensor: Any, gradient: Any = None, retain_graph: Any = None, create_graph: bool = False, inputs: Any = None
) -> None:
    _backward(tensor, gradient, retain_graph, create_graph, inputs=inputs)


_ATTENTION = (_THEIRS, torch.nn.functional.multi_head_attention_forward)
_INSTEAD: dict[Any, Callable[..., Any]] = {
    _THEIRS: _instead,
    torch.nn.functional.multi_head_attention_forward: _multi_head_over_fovea(),
    torch.autograd.backward: _backward,
    torch.autograd.grad: _with(torch.autograd.grad, _engine_run_backward=_engine_inside),
    torch.Tensor.backward: _tensor_backward,
}


class _recomputing(_checkpoint.RememberedMode):
    """Fovea's attention in what a backward pass inside `patched` computes again, but for checkpoints that were made
    outside. Those made inside enter `patched` by themselves, wherever the backward pass is."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _INSTEAD and (torch.compiler.is_compiling() or not _checkpoint.recomputes()):
            return _run_instead(self, func, args, kwargs)
        return func(*args, **(kwargs or {}))

    def again(self) -> TorchFunctionMode:
        return patched()


def _run_instead(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    if func in _ATTENTION and not torch.compiler.is_compiling():
        _checkpoint.remember(mode)
    return _INSTEAD[func](*args, **(kwargs or {}))


class patched(_checkpoint.RememberedMode):
    """`with fovea.torch.patched():` puts Fovea's attention under a model that was never told.

    Inside, each call of `torch.nn.functional.scaled_dot_product_attention`, by whatever name it was imported
    and whenever, runs `fovea.torch.scaled_dot_product_attention`: in your own modules, in
    `torch.nn.MultiheadAttention` and the transformer layers (which then do not take their fused inference
    path), and in transformers models with attn_implementation="sdpa". What Fovea does not serve (other devices,
    nested tensors, wrong arguments) goes to PyTorch's as before.

    Nothing of PyTorch is overwritten: it is a mode, of this thread alone (another thread, `DataParallel`'s say,
    enters its own), which may nest, ends with its block however that ends, and which torch.compile follows.
    A checkpoint (`torch.utils.checkpoint`) calls attention again in the backward pass: Fovea's if the checkpoint was
    called inside, PyTorch's if it was not, wherever `backward` is called. Other functions that compute again what
    they did not keep, and graphs of torch.compile in a checkpoint, are not known to Fovea: call `backward` where
    you called them, inside or outside.
    Attention weights (`need_weights=True`) are computed by PyTorch without this function, there as here.

    >>> import torch, fovea.torch
    >>> layer = torch.nn.MultiheadAttention(8, 2, batch_first=True)
    >>> x = torch.ones(1, 4, 8)
    >>> with fovea.torch.patched():
    ...     layer(x, x, x, need_weights=False)[0].shape
    torch.Size([1, 4, 8])
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _INSTEAD:
            return _run_instead(self, func, args, kwargs)
        return func(*args, **(kwargs or {}))

    def again(self) -> TorchFunctionMode:
        return patched()
