"""Fovea as an attention implementation of transformers: `attn_implementation="fovea"`."""

from __future__ import annotations

from typing import Any, Optional

import torch
from torch import Tensor

from .. import _call
from .._arrays import described
from .._errors import InvalidArgument
from ..masks import Causal, Mask
from ..mods import DenseBias, Mod, SoftCap
from ..normalizers import Softmax, SoftmaxWithSink
from . import _report
from ._cached_rows import in_cache
from ._kinds import is_transformed
from ._transformers_masks import NamedMask, Reader, Visible, _joined, padding

NAME = "fovea"


def make_mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: Any = 0,
    kv_offset: Any = 0,
    mask_function: Any = None,
    attention_mask: Optional[Tensor] = None,
    dtype: torch.dtype = torch.float32,
    device: Any = "cpu",
    **options: Any,
) -> Tensor:
    """Called by transformers to make the mask of a model's layers. Its arguments are those of transformers'
    `eager_mask`."""
    from transformers import masking_utils

    function = masking_utils.causal_mask_function if mask_function is None else mask_function
    sizes = {"batch_size": batch_size, "q_length": q_length, "kv_length": kv_length}
    where = {"q_offset": q_offset, "kv_offset": kv_offset, "device": device}
    given = {**sizes, **where, "mask_function": function, "attention_mask": attention_mask}
    given["use_vmap"] = options.get("use_vmap", False)
    if _must_be_dense(q_offset, attention_mask, device):
        return masking_utils.eager_mask(dtype=dtype, **given)

    def dense() -> Tensor:
        made: Tensor = masking_utils.sdpa_mask(allow_is_causal_skip=False, **given)
        return made

    first_query = int(q_offset) - int(kv_offset)
    mask = _reader(masking_utils).name(function, int(kv_offset))
    if mask is not None and attention_mask is not None:
        mask = _joined([mask, _padding_of(attention_mask, int(kv_offset), kv_length)])
    return NamedMask(Visible((batch_size, 1, q_length, kv_length), mask, first_query, dense), dtype)


def _must_be_dense(q_offset: Any, attention_mask: Optional[Tensor], device: Any) -> bool:
    """Whether the mask must be dense: in graphs, where tensors have no values yet; on devices that Fovea does not
    serve; and for static caches, whose offset is a tensor. Those are meant for compiled models, whose inputs must be
    plain tensors."""
    if torch.compiler.is_compiling() or torch._C._get_tracing_state() is not None or is_transformed():
        return True
    if torch._C._len_torch_dispatch_stack() > 0 or isinstance(q_offset, Tensor):
        return True
    return torch.device(device).type != "cpu"


_readers: dict[int, Reader] = {}


def _reader(masking_utils: Any) -> Reader:
    if id(masking_utils) not in _readers:
        _readers[id(masking_utils)] = Reader(masking_utils)
    return _readers[id(masking_utils)]


def _padding_of(attention_mask: Tensor, first_key: int, keys: int) -> Optional[Mask]:
    """The padding mask of Fovea for a 2-D mask, which counts positions from 0 and may end before the last key."""
    seen = attention_mask[:, first_key : first_key + keys].bool()
    if seen.shape[1] < keys:
        seen = torch.nn.functional.pad(seen, (0, keys - seen.shape[1]))
    return padding(seen)


def attention_forward(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Optional[Tensor],
    dropout: float = 0.0,
    scaling: Optional[float] = None,
    is_causal: Optional[bool] = None,
    softcap: Optional[float] = None,
    s_aux: Optional[Tensor] = None,
    position_bias: Optional[Tensor] = None,
    output_attentions: Optional[bool] = False,
    **options: Any,
) -> tuple[Tensor, Optional[Tensor]]:
    """Called by transformers for the attention of a layer.

    Args:
        query: [batch, num_query_heads, query_len, head_dim].
        key, value: [batch, num_kv_heads, key_len, head_dim], [batch, num_kv_heads, key_len, value_dim].
        attention_mask: the result of `make_mask`, or a mask from the model's caller: truth values (True: the key is
            seen) or numbers to be added, with four axes. None: no mask, or a causal mask if the module's `is_causal`
            is set.
        s_aux: the sinks, [num_query_heads].
        position_bias: added to the scaled scores, of four axes.

    Returns:
        ([batch, query_len, num_query_heads, value_dim], the weights before dropout or None).
    """
    for name in ("cache", "sinks"):
        if options.get(name) is not None:
            raise InvalidArgument(
                'attn_implementation="fovea"', name, "None: Fovea does not serve it", described(options[name])
            )
    mods: list[Mod] = [] if softcap is None else [SoftCap(float(softcap))]
    if position_bias is not None:
        mods.append(DenseBias(position_bias))
    mask, offset, added = _mask_of(module, attention_mask, is_causal, query, key)
    if added is not None:
        mods.append(DenseBias(added))
    held = in_cache(key, value)
    operands = {"key": key, "value": value} if held is None else {"cache": held, "sequences": ()}
    found = _report.serve(
        _report.INTERFACE,
        _call.attention,
        query,
        **operands,
        mods=mods,
        mask=mask,
        normalizer=Softmax() if s_aux is None else SoftmaxWithSink(s_aux.reshape(-1)),
        scale=scaling,
        dropout=dropout,
        query_offset=offset,
        return_weights=bool(output_attentions),
    )
    output, weights = found if output_attentions else (found, None)
    return output.transpose(1, 2).contiguous(), weights if weights is None else weights.to(query.dtype)


def _mask_of(
    module: Any, mask: Optional[Tensor], is_causal: Optional[bool], query: Tensor, key: Tensor
) -> tuple[Any, Optional[int], Optional[Tensor]]:
    """(mask, query_offset, numbers to be added)."""
    keys = key.shape[2]
    if mask is None:
        # `make_mask` returns a mask whenever the model has one, so this module requested none.
        causal = getattr(module, "is_causal", False) if is_causal is None else is_causal
        return (Causal() if causal and query.shape[2] > 1 else None), None, None
    if isinstance(mask, NamedMask):
        visible = mask.visible
        if mask.is_named:
            if visible.mask is not None and visible.sizes[3] == keys:
                return visible.mask, visible.query_offset, None
            return visible.dense()[..., :keys], None, None
        # In mpt's masks of truth values True hides a key.
        mask = mask.read().logical_not() if mask.dtype == torch.bool else mask.read()
    if mask.dim() != 4:
        expected = "a mask of four axes, [batch, heads or 1, query_len, key_len]"
        raise InvalidArgument('attn_implementation="fovea"', "attention_mask", expected, described(mask))
    mask = mask[..., :keys]
    return (mask, None, None) if mask.dtype == torch.bool else (None, None, mask)
