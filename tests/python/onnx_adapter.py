"""ONNX's operators Attention (opsets 23 to 25, the newest semantics) as calls of `fovea.attention`, RotaryEmbedding
(opset 23) as a call of `fovea.rotate`, and LinearAttention (opset 27) as one of `fovea.recurrence`."""

from __future__ import annotations

from typing import Any, Callable, Optional

import numpy as np

import fovea


def attention(
    Q: Any,
    K: Any,
    V: Any,
    attn_mask: Any = None,
    past_key: Any = None,
    past_value: Any = None,
    nonpad_kv_seqlen: Any = None,
    *,
    scale: Optional[float] = None,
    is_causal: int = 0,
    q_num_heads: int = 0,
    kv_num_heads: int = 0,
    softmax_precision: Optional[int] = None,
    softcap: float = 0.0,
    qk_matmul_output_mode: int = 0,
    left_window_size: int = -1,
    right_window_size: int = -1,
    wanted: int = 4,
) -> tuple[Any, ...]:
    """Y, present_key, present_value and qk_matmul_output, the first `wanted` of them."""
    flat = Q.ndim == 3
    if flat:
        Q, K, V = _heads(Q, q_num_heads), _heads(K, kv_num_heads), _heads(V, kv_num_heads)
    if past_key is not None:
        K, V = np.concatenate([past_key, K], axis=2), np.concatenate([past_value, V], axis=2)
    rows, columns = Q.shape[2], K.shape[2]
    lengths = None if nonpad_kv_seqlen is None else nonpad_kv_seqlen.reshape(-1)
    # Positions are counted in keys: after the keys of the cache, or at the end of a batch entry's own keys.
    offset = 0 if past_key is None else past_key.shape[2]
    back, ahead = (None if n < 0 else n for n in (left_window_size, right_window_size))
    mods: list[Any] = [fovea.SoftCap(softcap)] if softcap > 0 else []
    capped = list(mods)
    mask: fovea.Mask = fovea.Everything()
    if lengths is None:
        if is_causal:
            mask = mask & fovea.Causal()
        if (back, ahead) != (None, None):
            mask = mask & fovea.SlidingWindow(back, ahead)
    else:
        mask = mask & fovea.KeyLengths(lengths)
        mask = mask & fovea.Predicate(_behind(lengths - rows, 0 if is_causal else None, back, ahead))
    bias = None
    if attn_mask is not None:
        bias = _to_length(attn_mask, columns)
        if bias.dtype == np.bool_:
            bias = np.where(bias, np.float32(0), np.float32(-np.inf))
        mods.append(fovea.DenseBias(bias))
    given: dict[str, Any] = dict(scale=scale, mask=mask, query_offset=offset)
    mode = qk_matmul_output_mode
    # softmax_precision is ignored: the engine's is f32, or f64 for f64.
    if wanted == 4 and mode == 3:
        Y, products = fovea.attention(Q, K, V, mods=mods, return_weights=True, **given)
    else:
        Y = fovea.attention(Q, K, V, mods=mods, **given)
        products = _scores(Q, K, scale, capped if mode else []) if wanted == 4 else None
        if products is not None and mode == 2:
            hidden = ~_visible(mask, offset, products.shape)
            products = np.where(hidden, -np.inf, products + (0 if bias is None else bias.astype(np.float32)))
    if flat:
        Y = Y.transpose(0, 2, 1, 3).reshape(Y.shape[0], rows, -1)
    results = (Y, K, V, None if products is None else products.astype(Q.dtype))
    return results[:wanted]


def rotary_embedding(
    X: Any,
    cos_cache: Any,
    sin_cache: Any,
    position_ids: Any = None,
    *,
    interleaved: int = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
) -> Any:
    """rotary_embedding_dim repeats a size of the caches: twice their last axis."""
    x = _heads(X, num_heads) if X.ndim == 3 else X
    assert rotary_embedding_dim in (0, 2 * cos_cache.shape[-1])
    tables = fovea.RopeTables(cos_cache, sin_cache, interleaved=bool(interleaved))
    turned = fovea.rotate(x, tables, 0 if position_ids is None else position_ids)
    return turned.transpose(0, 2, 1, 3).reshape(X.shape) if X.ndim == 3 else turned


def linear_attention(
    query: Any,
    key: Any,
    value: Any,
    past_state: Any = None,
    decay: Any = None,
    beta: Any = None,
    *,
    q_num_heads: int,
    kv_num_heads: int,
    update_rule: bytes = b"gated_delta",
    scale: float = 0.0,
    chunk_size: int = 64,
) -> tuple[Any, Any]:
    """(output, present_state). A scale of 0 is 1/sqrt(key_dim); chunk_size changes no result."""
    q, k, v = (_heads(x, n) for x, n in ((query, q_num_heads), (key, kv_num_heads), (value, kv_num_heads)))
    spec: dict[str, Any] = {"scale": scale or None}
    assert update_rule in (b"linear", b"gated", b"delta", b"gated_delta")
    assert (decay is not None) == (b"gated" in update_rule) and (beta is not None) == (b"delta" in update_rule)
    if decay is not None:
        one = decay.shape[-1] == kv_num_heads
        by_head = _heads(decay, kv_num_heads)
        spec["decay"] = fovea.ScalarDecay(by_head[..., 0]) if one else fovea.KeyDecay(by_head)
    if beta is not None:
        by_head = np.broadcast_to(beta, (*beta.shape[:2], kv_num_heads))
        spec["write"] = fovea.DeltaWrite(by_head.transpose(0, 2, 1))
    out, state = fovea.recurrence(q, k, v, initial_state=past_state, return_state=True, **spec)
    out = out.transpose(0, 2, 1, 3).reshape(*query.shape[:2], -1)
    return out, state.astype(query.dtype if past_state is None else past_state.dtype)


def causal_conv(
    x: Any, weight: Any, bias: Any = None, past_state: Any = None, *, activation: bytes = b"none"
) -> tuple[Any, Any]:
    """(output, present_state). Channels come before tokens there, also in the states."""

    def turned(a: Any) -> Any:
        return None if a is None else np.ascontiguousarray(a.transpose(0, 2, 1))

    width = weight.shape[2]
    if width == 1:  # fovea has at least two taps: the one before the token is 0, and nothing is carried
        weight = np.concatenate([np.zeros_like(weight), weight], axis=2)
        past_state = None
    wide = np.float64 if x.dtype == np.float64 else np.float32  # fovea keeps states in the type of its arithmetic
    past = None if past_state is None else turned(past_state).astype(wide)
    name = {b"none": None, b"silu": "silu", b"swish": "silu"}[activation]
    y, state = fovea.causal_conv(
        turned(x), weight[:, 0, :], bias, activation=name, initial_state=past, return_state=True
    )
    return turned(y), turned(state)[:, :, : width - 1].astype(x.dtype)


def _heads(x: Any, heads: int) -> Any:
    return x.reshape(x.shape[0], x.shape[1], heads, -1).transpose(0, 2, 1, 3)


def _to_length(mask: Any, columns: int) -> Any:
    """A mask may have fewer keys than the call: the others are hidden."""
    missing = columns - mask.shape[-1]
    fill = False if mask.dtype == np.bool_ else mask.dtype.type(-np.inf)
    return np.concatenate([mask, np.full((*mask.shape[:-1], missing), fill, mask.dtype)], axis=-1)


def _behind(offsets: Any, causal: Optional[int], back: Optional[int], ahead: Optional[int]) -> Callable[..., Any]:
    """A window of positions that each batch entry counts from an offset of its own."""

    def visible(b: Any, h: Any, i: Any, j: Any) -> Any:
        distance = j - (i + offsets[b])
        seen = np.ones(np.broadcast_shapes(distance.shape), bool)
        for most in (causal, ahead):
            if most is not None:
                seen = seen & (distance <= most)
        return seen if back is None else seen & (distance >= -back)

    return visible


def _scores(Q: Any, K: Any, scale: Optional[float], mods: list[Any]) -> Any:
    """The log-sum-exp over one key is its score: every key becomes a batch entry of its own."""
    batch, heads, rows, dim = Q.shape
    columns = K.shape[2]
    one = K.transpose(0, 2, 1, 3).reshape(batch * columns, K.shape[1], 1, dim)
    all_rows = np.broadcast_to(Q[:, None], (batch, columns, heads, rows, dim)).reshape(batch * columns, heads, rows, dim)
    lse, _ = fovea.attention(all_rows, one, None, scale=scale, mods=mods, return_lse=True)
    return lse.reshape(batch, columns, heads, rows).transpose(0, 2, 3, 1)


def _visible(mask: Any, offset: int, shape: tuple[int, ...]) -> Any:
    """The keys that a mask shows: those that get weight if all scores are 0."""
    batch, heads, rows, columns = shape
    zero = np.zeros((batch, heads, rows, 1), np.float32), np.zeros((batch, heads, columns, 1), np.float32)
    return fovea.attention(*zero, None, mask=mask, query_offset=offset) > 0
