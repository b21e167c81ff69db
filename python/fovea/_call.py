"""One call: attention, its gradients, and an explanation of what would run."""

from __future__ import annotations

import dataclasses
from typing import Any, Iterable, Optional, Sequence, overload

from . import _cached, scores
from ._arrays import described, dtype_name, library_of
from ._cached import check_cache
from ._engine import check_unasked, make_request, seen
from ._errors import InvalidArgument, named
from ._positions import positions
from ._spec import SPEC, Shape, check_lengths, plan_for, take_apart
from .masks import Causal
from .cache import LayerOfCache, Sequence as OfCache

__all__ = ["attention", "gradients", "explain"]

_MISSING: Any = type("Missing", (), {"__repr__": lambda self: "<required>"})()


@overload
def attention(
    query: Any,
    key: Any,
    value: Any,
    *,
    score: Any = None,
    mods: Sequence[Any] = (),
    mask: Any = None,
    normalizer: Any = None,
    scale: Optional[float] = None,
    dropout: float = 0.0,
    precision: str = "full",
    return_lse: bool = False,
    return_weights: bool = False,
    weight_mods: Sequence[Any] = (),
    weight_heads: Optional[Sequence[int]] = None,
    weight_rows: Optional[Sequence[int]] = None,
    query_offset: Any = None,
    query_starts: Any = None,
    key_starts: Any = None,
    seed: Optional[int] = None,
    out: Any = None,
) -> Any: ...


@overload
def attention(
    query: Any,
    *,
    cache: LayerOfCache,
    sequences: Iterable[OfCache],
    score: Any = None,
    mods: Sequence[Any] = (),
    mask: Any = None,
    normalizer: Any = None,
    scale: Optional[float] = None,
    dropout: float = 0.0,
    precision: str = "full",
    return_lse: bool = False,
    return_weights: bool = False,
    weight_mods: Sequence[Any] = (),
    weight_heads: Optional[Sequence[int]] = None,
    weight_rows: Optional[Sequence[int]] = None,
    query_offset: Any = None,
    query_starts: Any = None,
    seed: Optional[int] = None,
    out: Any = None,
) -> Any: ...


def attention(
    query: Any,
    key: Any = _MISSING,
    value: Any = _MISSING,
    *,
    cache: Any = None,
    sequences: Any = None,
    score: Any = None,
    mods: Sequence[Any] = (),
    mask: Any = None,
    normalizer: Any = None,
    scale: Optional[float] = None,
    dropout: float = 0.0,
    precision: str = "full",
    return_lse: bool = False,
    return_weights: bool = False,
    weight_mods: Sequence[Any] = (),
    weight_heads: Optional[Sequence[int]] = None,
    weight_rows: Optional[Sequence[int]] = None,
    query_offset: Any = None,
    query_starts: Any = None,
    key_starts: Any = None,
    seed: Optional[int] = None,
    out: Any = None,
) -> Any:
    """score·scale → mods in their order → mask → normaliser → weight mods → dropout → Σ weights·values.

    Args:
        query: [batch, num_query_heads, query_len, head_dim] of f32, f64, bf16 or f16: a NumPy array, a PyTorch
            tensor, or anything with `__dlpack__`. Any strides; an innermost axis that is not contiguous costs
            a copy.
        key: [batch, num_kv_heads, key_len, key_dim]; kv head of query head h is
            h // (num_query_heads // num_kv_heads).
        value: [batch, num_kv_heads, key_len, value_dim], or None: weights alone (pointers).
        cache: in the place of key and value, a layer of a `KvCache`: `cache[layer]`. Its rows are read where they lie.
            Gradients are not taken.
        sequences: beside cache, one of its sequences for each batch entry, or for each entry of query_starts. The
            query_offset of an entry is its length less its queries, if none is given.
        score: `Dot()`, `Additive(W, U, v)`, ...; None: `ScaledDot()`.
        mods: `[SoftCap(50), AlibiBias(slopes)]`, in the order given.
        mask: `Causal() & SlidingWindow(127)`; or an array that broadcasts to [batch, num_query_heads, query_len,
            key_len], of truth values (True: visible) or of numbers that are added to the scores; or a function
            (batch, head, i, j), see `Predicate`.
        normalizer: `Sparsemax()`, ...; None: `Softmax()`.
        scale: multiplies the score; None: 1/sqrt(head_dim) for ScaledDot, 1 for others.
        dropout: the share of weights dropped, rounded to k/256; 1/512 or less drops none.
        precision: the lowest precision of f32 products that is acceptable: "full", "higher" (three bf16 terms for
            each number: as exact as "full"), "high" (two terms) or "medium" (one term). A CPU without bf16 tiles
            (AMX) computes more exactly than asked. In several terms an infinite element of a query or key may give
            NaN where "full" gives a weight of 0.
        return_lse: also return the log-sum-exp, [batch, num_query_heads, query_len], natural logarithm; -inf for a
            row that sees no key. Normalisers other than softmax return their own number instead.
        return_weights: also return the weights, [batch, num_query_heads, query_len, key_len], before dropout.
        weight_mods: mods of the weights: `[LocalGaussian(5, center)]`.
        weight_heads: the query heads whose weights are returned; None: all.
        weight_rows: the rows of queries whose weights are returned; None: all.
        query_offset: position of the first query, counted in keys; or a sequence with one position for each batch
            entry, for caches whose entries hold different numbers of keys; None: key_len - query_len.
        query_starts, key_starts: a packed batch: entry e has the query rows from query_starts[e] to query_starts[e + 1],
            and the keys alike: [entries + 1] each, from 0 to the number of rows (FlashAttention's cu_seqlens). The
            batch axis is then 1, its rows are those of all entries, and everything else counts entries: masks,
            dropout and arguments see the entry as their batch entry and positions within it.
        seed: of dropout and samples, in [0, 2^64); None: a new one for each call (from PyTorch's generator for its
            tensors).
        out: an array for the output, which must not overlap the inputs.

    Returns:
        The output, [batch, num_query_heads, query_len, value_dim], in the library and dtype of the query; with
        `return_lse` or `return_weights` a tuple of the requested arrays, in this order. A row that sees no key gives
        0.

    Raises:
        InvalidArgument: names the argument, what was expected, and what was given.

    PyTorch tensors get gradients: query, key, value and every array of a score, mod, mask or normaliser.
    The interpreter lock is released while the call computes.

    >>> import numpy as np
    >>> q = k = v = np.ones((1, 2, 4, 8), np.float32)
    >>> out, lse = fovea.attention(q, k, v, mask=fovea.Causal(), return_lse=True)
    >>> out.shape, lse.shape
    ((1, 2, 4, 8), (1, 2, 4))
    """
    if cache is None and (key is _MISSING or value is _MISSING):
        raise TypeError(f"attention() missing the required argument '{'key' if key is _MISSING else 'value'}'")
    if (
        score is normalizer is scale is cache is sequences is weight_heads is weight_rows is query_offset is None
        and query_starts is key_starts is seed is out is None
        and return_lse is False
        and return_weights is False
        and (mask is None or type(mask) is Causal)
        and mods.__class__ is weight_mods.__class__ is tuple
        and not mods
        and not weight_mods
        and dropout.__class__ is float
        and dropout == 0.0
        and precision.__class__ is str
        and precision == "full"
    ):
        output = library_of(query).attend_plainly(query, key, value, mask is not None)
        if output is not None:
            return output
    key, value = (None if x is _MISSING else x for x in (key, value))
    if cache is not None or sequences is not None:
        check_cache(cache, key, value, key_starts, sequences)
    query, key, value = seen(query), seen(key), seen(value)
    check_lengths(mask)
    call = take_apart(
        query,
        score=score,
        mods=mods,
        mask=mask,
        normalizer=normalizer,
        scale=scale,
        dropout=dropout,
        precision=precision,
        weight_mods=weight_mods,
    )
    library = library_of(query)
    number = library.seed_number(seed)
    request = make_request(
        query_offset, number, weight_heads, weight_rows, return_lse, return_weights, query_starts, key_starts
    )
    if cache is not None:
        return _cached.attend(call, query, cache, sequences, request, seed, out)
    check_unasked(request, value, out)
    return library.attend(call, query, key, value, request, seed, out)


@named("gradients")
def gradients(
    query: Any,
    key: Any,
    value: Any,
    d_output: Any,
    *,
    score: Any = None,
    mods: Sequence[Any] = (),
    mask: Any = None,
    normalizer: Any = None,
    scale: Optional[float] = None,
    dropout: float = 0.0,
    precision: str = "full",
    weight_mods: Sequence[Any] = (),
    weight_heads: Optional[Sequence[int]] = None,
    weight_rows: Optional[Sequence[int]] = None,
    query_offset: Any = None,
    query_starts: Any = None,
    key_starts: Any = None,
    seed: Optional[int] = None,
    d_weights: Any = None,
    advantage: Any = None,
) -> dict[str, Any]:
    """Derivatives of a loss with respect to every array that `attention` took, for use without PyTorch.

    Args:
        d_output: the loss's derivative by the output, in the output's shape and dtype; None if the loss depends on
            the weights alone.
        d_weights: the loss's derivative by the returned weights, in their shape, f32 (f64 for f64); None if the loss
            does not depend on them.
        advantage: for HardSample, [batch, num_query_heads, query_len].
        seed: that of the call of `attention`. A call that drew random numbers needs it.
        The others: as in the call of `attention`. Chosen heads and rows of weights are those of d_weights.

    Returns:
        Arrays by name: "query", "key", "value", and those of parameters, "score.W", "mods[0].slope",
        "normalizer.sink", in the shapes of the arrays given. An additive mask counts as the last of the mods,
        "mods[0].bias". With HardArgmax only "value" and "weight_mods[...]" are returned: its scores have no
        derivative.

    >>> import numpy as np
    >>> q = k = v = np.ones((1, 2, 4, 8), np.float32)
    >>> bias = fovea.AlibiBias(np.ones(2, np.float32))
    >>> sorted(fovea.gradients(q, k, v, np.ones_like(v), mods=[bias]))
    ['key', 'mods[0].slope', 'query', 'value']
    """
    query, key, value = seen(query), seen(key), seen(value)
    check_lengths(mask)
    call = take_apart(
        query,
        score=score,
        mods=mods,
        mask=mask,
        normalizer=normalizer,
        scale=scale,
        dropout=dropout,
        precision=precision,
        weight_mods=weight_mods,
    )
    if seed is None and call.structure.draws:
        raise InvalidArgument("gradients", "seed", "that of the call of attention, which drew random numbers", "None")
    request = make_request(
        query_offset, seed, weight_heads, weight_rows, lse=True, query_starts=query_starts, key_starts=key_starts
    )
    library = library_of(query)
    losses = {"d_output": d_output, "d_weights": d_weights, "advantage": advantage}
    given = {name: x for name, x in losses.items() if x is not None}
    if not given:
        raise InvalidArgument("gradients", "d_output", "an array, or d_weights or advantage", "none of them")
    if d_weights is None:  # the loss depends on no weights, whichever were returned
        request = dataclasses.replace(request, weight_heads=(), weight_rows=())
    results = library.gradients(call, query, key, value, request, given)
    if isinstance(score, scores.Concat):
        results["score.W"] = library.joined(results["score.W"], results.pop("score.U"))
    return {name: library.result(x, query) for name, x in results.items()}


@named("explain")
def explain(query: Any, key: Any = None, value: Any = None, **arguments: Any) -> str:
    """What `attention` would do with these arguments: the kernel, why better kernels refused, the spec, its
    arguments, the shape, and the share of tiles that the mask skips. Keys and values may be in a cache
    (`cache=cache[layer], sequences=[...]`); the sequences then count with the lengths that they have now.

    >>> kernel, rest = fovea.explain(q, k, v, mask=fovea.Causal()).split("\\n", 1)
    >>> print(rest)  # doctest: +ELLIPSIS
    scaled-dot x 0.35355339059327373 -> causal -> softmax
    batch 1, heads 2/2, queries 4, keys 4, head_dim 8, value_dim 8, f32
    ...
    """
    at = positions(*(arguments.pop(name, None) for name in ("query_offset", "query_starts", "key_starts")))
    for name in ("return_lse", "return_weights", "weight_heads", "weight_rows", "seed", "out"):
        arguments.pop(name, None)  # no plan depends on them
    cache, sequences = arguments.pop("cache", None), arguments.pop("sequences", None)
    unknown = set(arguments) - SPEC
    if unknown:
        raise TypeError(f"explain() got an unexpected keyword argument {sorted(unknown)[0]!r}")
    query, key, value = seen(query), seen(key), seen(value)
    if cache is not None or sequences is not None:
        check_cache(cache, key, value, at.key_starts, sequences)
    call = take_apart(query, **arguments)
    if cache is not None:
        request = make_request(at.offset, query_starts=at.query_starts)
        return _cached.explain(call, query, cache, sequences, request).rstrip("\n")
    library = library_of(query)
    query, key, value = library.cast(query), library.cast(key), library.cast(value)  # as a call does under autocast
    shape, dtype = Shape.of(query, key, value, call), dtype_name(query, "query")
    wanted = (shape.batch, shape.num_kv_heads, shape.key_len)
    for name, x in (("key", key), ("value", value)):
        if x is not None and (dtype_name(x, name) != dtype or tuple(x.shape[:3]) != wanted):
            raise InvalidArgument("explain", name, f"{dtype} [{', '.join(map(str, wanted))}, dim]", described(x))
    return plan_for(call, shape, dtype, at).explain(at.offsets()).rstrip("\n")
