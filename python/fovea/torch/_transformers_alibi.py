"""bloom and mpt: ALiBi, in attention classes that do not use transformers' attention interface.

Their forward is replaced by one that checks the mask. A mask that Fovea made means that the model has
attn_implementation="fovea". With any other mask the original forward runs.
"""

from __future__ import annotations

import functools
import importlib
from typing import Any, Callable

import torch

from ._transformers import attention_forward
from ._transformers_masks import NamedMask


def teach() -> None:
    """Patches the classes once, however often it is called."""
    for family, prefix, ours in (("bloom", "Bloom", _bloom), ("mpt", "Mpt", _mpt)):
        try:
            module = importlib.import_module(f"transformers.models.{family}.modeling_{family}")
        except ImportError:  # a later transformers without this family
            continue
        layer, models = getattr(module, f"{prefix}Attention"), getattr(module, f"{prefix}PreTrainedModel")
        if hasattr(layer.forward, "fovea_replaced"):
            continue
        layer.forward = _beside(layer.forward, ours)
        # Without this `set_attn_implementation` refuses every name, as for all families outside of the interface.
        models._can_set_attn_implementation = classmethod(lambda cls: True)
        if family == "mpt":
            module.MptBlock.forward = _telling_of_weights(module.MptBlock.forward)


def _beside(theirs: Callable[..., Any], ours: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(theirs)
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        return (ours if isinstance(kwargs.get("attention_mask"), NamedMask) else theirs)(self, *args, **kwargs)

    forward.fovea_replaced = theirs  # type: ignore[attr-defined]
    return forward


def _telling_of_weights(theirs: Callable[..., Any]) -> Callable[..., Any]:
    """Passes on whether weights are wanted: mpt's attention always returns them, so its block does not say."""

    @functools.wraps(theirs)
    def forward(self: Any, *args: Any, **kwargs: Any) -> Any:
        self.attn.fovea_wants_weights = kwargs.get("output_attentions", False)
        return theirs(self, *args, **kwargs)

    return forward


def _attend(
    layer: Any,
    parts: "tuple[Any, ...]",
    cache: Any,
    mask: Any,
    bias: Callable[[int], Any],
    *,
    dropout: float,
    **options: Any,
) -> tuple[Any, Any]:
    """`attention_forward`, after the cache.

    Args:
        parts: query, key, value.
        bias: a function from a number of keys to the numbers that are added to the scaled scores.
    """
    query, key, value = parts
    if cache is not None:
        key, value = cache.update(key, value, layer.layer_idx)
    options["position_bias"] = bias(key.shape[2])
    return attention_forward(layer, query, key, value, mask, dropout if layer.training else 0.0, **options)


def _bloom(
    self: Any,
    hidden_states: Any,
    residual: Any,
    *,
    alibi: Any,
    attention_mask: Any,
    layer_past: Any = None,
    **options: Any,
) -> tuple[Any, Any]:
    """scale · q·k + beta · alibi, alibi [batch · heads, 1, key_len]: slope · position of the key, of padding 0."""
    if self.pretraining_tp > 1 and self.slow_but_exact:
        # The order of summation in the last product is part of the requested configuration.
        options.update(alibi=alibi, attention_mask=attention_mask, layer_past=layer_past)
        found: tuple[Any, Any] = type(self).forward.fovea_replaced(self, hidden_states, residual, **options)
        return found
    query, key, value = self._reshape(self.query_key_value(hidden_states))
    bias = alibi.reshape(query.shape[0], self.num_heads, 1, -1) * self.beta
    output, weights = _attend(
        self,
        (query, key, value),
        layer_past,
        attention_mask,
        lambda key_len: bias,
        dropout=self.attention_dropout.p,
        scaling=float(self.inv_norm_factor),
        output_attentions=options.get("output_attentions"),
    )
    output = self.dense(output.flatten(2))
    return torch.nn.functional.dropout(output, self.hidden_dropout, self.training) + residual, weights


def _mpt(
    self: Any,
    hidden_states: Any,
    *,
    position_bias: Any,
    attention_mask: Any,
    past_key_values: Any = None,
    **options: Any,
) -> tuple[Any, Any]:
    """position_bias [heads, 1, max_seq_len]: slope · (key - last position), of which the last key_len are read."""
    mixed = self.Wqkv(hidden_states)
    if self.clip_qkv:
        mixed = mixed.clamp(min=-self.clip_qkv, max=self.clip_qkv)
    parts = tuple(x.unflatten(2, (self.n_heads, self.head_dim)).transpose(1, 2) for x in mixed.chunk(3, dim=2))
    output, weights = _attend(
        self,
        parts,
        past_key_values,
        attention_mask,
        lambda key_len: position_bias[None, :, :, -key_len:],
        dropout=self.attn_dropout_p,
        scaling=self.softmax_scale,
        output_attentions=getattr(self, "fovea_wants_weights", False),
    )
    return self.out_proj(output.flatten(2)), weights
