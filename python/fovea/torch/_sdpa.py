"""PyTorch's scaled_dot_product_attention on Fovea's engine."""

from __future__ import annotations

import functools
import math
import numbers
from typing import Any, Optional

import torch
from torch import Tensor

from .. import _call
from .._arrays import described
from .._engine import Request
from .._errors import InvalidArgument
from .._positions import Positions
from .._spec import Call, Structure
from .._value import shown
from ..cache import LayerOfCache
from ..masks import ArrayMask, Causal, Everything, Mask
from . import _plain_calls
from ._kinds import PLAIN, CausalBias, is_known, is_transformed, is_upper_left
from ._op import attention

_FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
# In PyTorch's causal masks row 0 sees key 0, however many keys there are.
_TOP_LEFT = (Request(Positions(0)), Request(Positions(0), row_major=True))
_LOWER_RIGHT = (Request(), Request(row_major=True))
_CAUSAL, _EVERYTHING = Causal(), Everything()


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Optional[Tensor] = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: Optional[float] = None,
    enable_gqa: bool = False,
) -> Tensor:
    """`torch.nn.functional.scaled_dot_product_attention` with the same arguments, for tensors on the CPU.

    Args:
        query: [..., heads, query_len, head_dim] of f32, f64, bf16 or f16, 2 axes or more.
        key: [..., heads, key_len, head_dim]. The leading axes of query, key and value broadcast against each other.
        value: [..., heads, key_len, value_dim].
        attn_mask: broadcasts to [..., heads, query_len, key_len]. Truth values (True: the key is seen), or numbers
            that are added to the scaled scores and get a gradient if they require one; or a bias of
            `torch.nn.attention.bias` of this call's lengths.
        dropout_p: the share of weights dropped, rounded to k/256 (1/512 or less drops none); also in evaluation, as
            in PyTorch.
        is_causal: row i sees key j where j <= i (aligned top-left, as in PyTorch; `fovea.Causal()` aligns at the
            end). Not together with a mask.
        scale: None: 1/sqrt(head_dim).
        enable_gqa: key and value may have fewer heads, by a whole factor; each serves that many of the query's.

    Returns:
        [..., heads, query_len, value_dim] in the query's dtype. A row that sees no key gives 0, where PyTorch's
        kernels give 0 for truth values and NaN for an additive mask of -inf. Its strides are those of PyTorch's
        result: the query's order of axes where PyTorch takes its flash kernel, row-major where it does not (dropout,
        a value_dim other than head_dim, leading axes that broadcast, more than four axes).

    Raises:
        InvalidArgument: names the argument, for invalid arguments and for calls that `patched` would pass on to
        PyTorch.

    Under autocast query, key and value are cast as PyTorch casts them; an additive mask is added in f32 (f64).

    >>> import torch, fovea.torch
    >>> q = torch.ones(2, 4, 8)
    >>> fovea.torch.scaled_dot_product_attention(q, q, q, is_causal=True).shape
    torch.Size([2, 4, 8])
    """
    if attn_mask is None and not torch.compiler.is_compiling():
        found = _run_plainly(query, key, value, dropout_p, is_causal, scale, enable_gqa)
        if found is not None:
            return found
    why = refusal(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
    if why is not None:
        raise InvalidArgument("scaled_dot_product_attention", *why)
    return run(query, key, value, attn_mask, dropout_p, is_causal, scale)


def _run_plainly(
    query: Any, key: Any, value: Any, dropout_p: Any, is_causal: Any, scale: Any, enable_gqa: Any
) -> Optional[Tensor]:
    """The result of a call without mask and dropout, or None: `refusal` and `run` serve this call."""
    if not (is_causal.__class__ is enable_gqa.__class__ is bool and (dropout_p.__class__ is float and dropout_p == 0.0)):
        return None
    if scale is not None and not (scale.__class__ is float and math.isfinite(scale)):
        return None
    if type(query) not in PLAIN or not query.is_contiguous():  # `run` knows when PyTorch's result is row-major
        return None
    return _plain_calls.attend(_plain_calls.plain(is_causal, scale, 0, enable_gqa), query, key, value)


def refusal(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any,
    dropout_p: Any,
    is_causal: Any,
    scale: Any,
    enable_gqa: Any,
) -> Optional[tuple[str, str, str]]:
    """(argument, what it must be, what was given), or None if this call can be served."""
    for name, x in (("query", query), ("key", key), ("value", value), ("attn_mask", attn_mask)):
        if x is None and name == "attn_mask":
            continue
        if not isinstance(x, Tensor):
            return name, "a tensor", type(x).__name__
        if name == "attn_mask" and isinstance(x, CausalBias):
            continue
        if not is_known(x):
            return name, "a tensor of PyTorch's own class", f"a {type(x).__name__}"
        if x.device.type != "cpu" or x.layout is not torch.strided or x.is_nested:
            return name, "a dense tensor on the CPU", f"{x.layout} on {x.device}"
        if x.dtype not in _FLOATS and not (name == "attn_mask" and x.dtype == torch.bool):
            return name, "a tensor of f32, f64, bf16 or f16", described(x)
        if x.dim() < 2 and name != "attn_mask":
            return name, "[..., heads, length, dim]", described(x)
    if not torch.is_autocast_enabled("cpu"):
        for name, x in (("key", key), ("value", value)):
            if x.dtype != query.dtype:
                return name, f"the dtype of the query, {query.dtype}", described(x)
    why = _number_refusal(attn_mask, dropout_p, is_causal, scale, enable_gqa)
    return why or _shape_refusal(query, key, value, attn_mask, enable_gqa)


def _number_refusal(
    attn_mask: Any, dropout_p: Any, is_causal: Any, scale: Any, enable_gqa: Any
) -> Optional[tuple[str, str, str]]:
    for name, truth in (("is_causal", is_causal), ("enable_gqa", enable_gqa)):
        if not isinstance(truth, (bool, int)):
            return name, "True or False", shown(truth)
    if is_causal and attn_mask is not None:
        return "is_causal", "False beside attn_mask", "True"
    # A tensor has no value of its own in a graph, and within vmap.
    if isinstance(dropout_p, Tensor) and (torch.compiler.is_compiling() or is_transformed()):
        return "dropout_p", "a number where calls are traced or transformed", described(dropout_p)
    if not _is_number(dropout_p) or not 0 <= dropout_p < 1:
        return "dropout_p", "a rate in [0, 1)", shown(dropout_p)
    if scale is None:
        return None
    if not _is_number(scale):
        return "scale", "a number or None", shown(scale)
    if not torch.compiler.is_compiling() and not math.isfinite(float(scale)):
        return "scale", "a finite number", shown(scale)
    return None


def _is_number(x: Any) -> bool:
    """Whether PyTorch takes x as a number. A tensor that requires grad would lose its gradient."""
    if isinstance(x, (int, float)):
        return True
    return x.numel() == 1 and not x.requires_grad if isinstance(x, Tensor) else isinstance(x, numbers.Real)


def _shape_refusal(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Optional[Tensor], enable_gqa: bool
) -> Optional[tuple[str, str, str]]:
    if query.shape[-1] != key.shape[-1]:
        return "key", f"head_dim {query.shape[-1]}, the query's", described(key)
    if key.shape[-2] != value.shape[-2]:
        return "value", f"key_len {key.shape[-2]}, the key's", described(value)
    for name, x in (("query", query), ("value", value)):
        if x.shape[-1] == 0 or x.dim() > 2 and x.shape[-3] == 0:
            return name, "heads and dims of at least 1", described(x)
    if attn_mask is None and query.dim() == 4 and query.shape[:2] == key.shape[:2] == value.shape[:2]:
        return None  # the most common case
    lead = _leading(query, key, value, enable_gqa)
    if lead is None:
        if enable_gqa:
            return "key", "heads that divide the query's, and leading axes that broadcast", described(key)
        return "key", "leading axes that broadcast with the query's and the value's", described(key)
    if isinstance(attn_mask, CausalBias):
        lengths, own = [query.shape[-2], key.shape[-2]], [attn_mask.seq_len_q, attn_mask.seq_len_kv]
        if own != lengths:
            return "attn_mask", f"a causal bias of {lengths}", f"one of {own}"
    elif attn_mask is not None:
        full = (*lead, query.shape[-2], key.shape[-2])
        if attn_mask.dim() > len(full) or not _fits(attn_mask.shape, full):
            return "attn_mask", f"a tensor that broadcasts to {list(full)}", described(attn_mask)
    return None


def _fits(shape: Any, full: Any) -> bool:
    return all(a == 1 or a == b for a, b in zip(reversed(shape), reversed(full)))


def _broadcast(shapes: Any) -> Optional[tuple[int, ...]]:
    """Like torch.broadcast_shapes, but None where that raises."""
    result: list[int] = []
    for axis in range(1, max(len(shape) for shape in shapes) + 1):
        size = 1
        for shape in shapes:
            if len(shape) >= axis and shape[-axis] != 1:
                if size != 1 and shape[-axis] != size:
                    return None
                size = shape[-axis]
        result.insert(0, size)
    return tuple(result)


def _leading(query: Tensor, key: Tensor, value: Tensor, enable_gqa: bool) -> Optional[tuple[int, ...]]:
    """The output's axes before its last two."""
    shapes = [x.shape[:-2] for x in (query, key, value)]
    if not enable_gqa:
        return _broadcast(shapes)
    if any(len(shape) < 1 for shape in shapes):
        return None
    heads = query.shape[-3]
    for x in (key, value):
        if x.shape[-3] == 0 or heads % x.shape[-3]:
            return None
    if key.shape[-3] != value.shape[-3]:
        return None
    batch = _broadcast([shape[:-1] for shape in shapes])
    return None if batch is None else (*batch, heads)


def run(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Optional[Tensor],
    dropout_p: float,
    is_causal: bool,
    scale: Optional[float],
) -> Tensor:
    """Runs a call that `refusal` accepted."""
    where = _TOP_LEFT
    if isinstance(attn_mask, CausalBias):
        where = _TOP_LEFT if is_upper_left(attn_mask) else _LOWER_RIGHT
        attn_mask, is_causal = None, True
    row_major = query.is_contiguous() or not _follows_query(query, key, value, attn_mask, dropout_p)
    bias = attn_mask if attn_mask is not None and attn_mask.dtype != torch.bool else None
    visible = attn_mask if bias is None else None
    mask = _CAUSAL if is_causal else _EVERYTHING
    lead: Optional[tuple[int, ...]] = None
    if not (query.dim() == key.dim() == value.dim() == 4 and _four_fit(query, key, value)):
        lead = _leading(query, key, value, _is_grouped(query, key))
        assert lead is not None
        query, key, value = _as_four(query, key, value, lead)
    if bias is not None:
        bias = _mask_as_four(bias, lead)
    if visible is not None:
        visible = _mask_as_four(visible, lead)
    make = _structure if torch.compiler.is_compiling() else _known_structure
    structure = make(mask, None if scale is None else float(scale), float(dropout_p), bias is not None)
    call = Call(
        structure,
        {} if bias is None else {"mods[0].bias": bias},
        (),
        None if visible is None else ArrayMask(visible),
    )
    result = attention(call, query, key, value, where[row_major], None)
    return result if lead is None else result.reshape(*lead, *result.shape[-2:])


def run_over_cache(
    query: Tensor,
    rows: LayerOfCache,
    attn_mask: Optional[Tensor],
    dropout_p: float,
    is_causal: bool,
    scale: Optional[float],
) -> Tensor:
    """The same where key and value are the rows of a cache, [batch, num_kv_heads, length, dim]."""
    mask = _CAUSAL if is_causal else attn_mask
    result: Tensor = _call.attention(
        query, cache=rows, sequences=(), mask=mask, query_offset=0, scale=scale, dropout=float(dropout_p)
    )
    return result


def _follows_query(query: Tensor, key: Tensor, value: Tensor, mask: Optional[Tensor], dropout_p: float) -> bool:
    """Whether PyTorch's output has the query's order of axes. Its flash kernel for CPUs keeps it; its other
    implementation gives row-major results. A `.view` that works on PyTorch's result must work on ours, so these are
    the conditions of that kernel (aten/src/ATen/native/transformers/sdp_utils_cpp.cpp, PyTorch 2.15)."""
    tensors = (query, key, value)
    if dropout_p > 0 or query.dim() not in (3, 4):
        return False
    # torch.compile cannot trace this query; a graph assumes that the kernel is allowed.
    if not torch.compiler.is_compiling() and not torch.backends.cuda.flash_sdp_enabled():
        return False
    if not query.dim() == key.dim() == value.dim() or any(x.stride(-1) != 1 for x in tensors):
        return False
    if not query.shape[-1] == key.shape[-1] == value.shape[-1] or query.shape[-2] == 0 or key.shape[-2] == 0:
        return False
    if query.dim() == 4 and not query.shape[0] == key.shape[0] == value.shape[0]:
        return False
    if key.shape[-3] != value.shape[-3] or query.shape[-3] % key.shape[-3] != 0:
        return False
    return mask is None or not mask.requires_grad and (mask.dim() == 2 or mask.dim() == query.dim())


def _structure(mask: Mask, scale: Optional[float], dropout: float, biased: bool) -> Structure:
    return Structure(
        score="scaled-dot",
        scale=scale,
        mods=("bias",) if biased else (),
        mask=mask,
        normalizer="softmax",
        weight_mods=(),
        dropout=dropout,
        precision="full",
        hidden=0,
    )


_known_structure = functools.lru_cache(maxsize=64)(_structure)


def _is_grouped(query: Tensor, key: Tensor) -> bool:
    """Whether key and value have fewer heads and do not broadcast; `refusal` has checked that this is allowed."""
    if query.dim() < 3 or key.dim() < 3:
        return False
    return query.shape[-3] != key.shape[-3] and query.shape[-3] != 1 and key.shape[-3] != 1


def _four_fit(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """Whether the engine takes these tensors directly: key and value have equally many heads, each serving a whole
    group of the query's."""
    if not query.shape[0] == key.shape[0] == value.shape[0] or key.shape[1] != value.shape[1]:
        return False
    return key.shape[1] == query.shape[1] or (key.shape[1] > 0 and query.shape[1] % key.shape[1] == 0)


def _as_four(query: Tensor, key: Tensor, value: Tensor, lead: tuple[int, ...]) -> tuple[Tensor, ...]:
    """x as [batch, heads, length, dim], without a copy if no leading axes must be joined."""
    batch, heads = (lead[:-1], lead[-1]) if lead else ((), 1)
    rows = 1
    for n in batch:
        rows *= n

    def four(x: Tensor, own: int) -> Tensor:
        x = x.expand(*batch, own, *x.shape[-2:])
        return x if len(batch) == 1 else x.reshape(rows, own, *x.shape[-2:])

    def heads_of(x: Tensor) -> int:
        return x.shape[-3] if x.dim() > 2 else 1

    kv = heads_of(key) if heads_of(key) == heads_of(value) and heads_of(key) != 0 else heads
    return four(query, heads), four(key, kv), four(value, kv)


def _mask_as_four(mask: Tensor, lead: Optional[tuple[int, ...]]) -> Tensor:
    """The mask with at most four axes that broadcast to [batch, heads, query_len, key_len]."""
    if lead is None or mask.dim() <= min(3, len(lead) + 2):
        return mask
    batch = lead[:-1]
    if len(batch) == 1:
        return mask
    own = mask.shape[:-3]
    if all(n == 1 for n in own):
        return mask.reshape(1, *mask.shape[-3:])
    rows = 1
    for n in batch:
        rows *= n
    return mask.expand(*batch, *mask.shape[-3:]).reshape(rows, *mask.shape[-3:])
