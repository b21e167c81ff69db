"""Calls whose keys and values are in a cache."""

from __future__ import annotations

import dataclasses
from typing import Any, Optional

from ._arrays import described, dtype_name, library_of
from ._engine import Request, check_out, forward, operands, results
from ._errors import InvalidArgument
from ._spec import Call, PlanKey, Shape, by_sizes, known_plan, plan_of_sizes
from ._value import check_no_gradient, shown
from .cache import LayerOfCache

# Capacities are powers of two from here on, so that a loop of decoding plans some ten times in all.
_LEAST_CAPACITY = 64


def check_cache(cache: Any, key: Any, value: Any, key_starts: Any, sequences: Any) -> None:
    """Throws for arguments that do not stand beside one another."""
    if cache is None:
        if sequences is not None:
            raise InvalidArgument("attention", "sequences", "None without cache", shown(sequences))
        return
    if not isinstance(cache, LayerOfCache):
        raise InvalidArgument("attention", "cache", "a layer of a fovea.KvCache: cache[layer]", shown(cache))
    for name, x in (("key", key), ("value", value), ("key_starts", key_starts)):
        if x is not None:
            raise InvalidArgument("attention", name, "None beside cache", described(x))
    if sequences is None:
        raise InvalidArgument("attention", "sequences", "the sequences of the batch", "None")


def attend(
    call: Call, query: Any, layer: LayerOfCache, sequences: Any, request: Request, seed: Any, out: Any
) -> Any:
    """`attention` over the rows of a layer."""
    library = library_of(query)
    query = library.cast(query)
    check_out("attention", "out", out)
    check_no_gradient("attention", "query", query, " (detach it, or torch.no_grad()): a cache has none")
    chosen = library.seed_of_plan(call, query, None, None, seed)
    if isinstance(chosen, int):  # else the request has one already
        request = dataclasses.replace(request, seed=chosen)
    dtype = dtype_name(query, "query")
    views = layer._views(sequences, "attention")
    shape = _shape(query, layer, views, call)
    plan = _plan_for(call, shape, dtype, request, [view.length for view in views])
    found = forward(plan, call, operands(call, query, None, None, dtype), shape, dtype, request, out, views)
    return results(found, query, request)


def _shape(query: Any, layer: LayerOfCache, views: list[Any], call: Call) -> Shape:
    """Of the outputs."""
    spec = layer.spec
    sizes = tuple(int(n) for n in getattr(query, "shape", ()))
    if len(sizes) != 4:
        raise InvalidArgument("attention", "query", "[batch, heads, length, dim]", described(query))
    value_dim = spec.head_dim if spec.value_dim is None else spec.value_dim
    return Shape(
        batch=sizes[0],
        num_query_heads=sizes[1],
        num_kv_heads=spec.num_kv_heads,
        query_len=sizes[2],
        key_len=max(view.length for view in views),
        head_dim=sizes[3],
        value_dim=0 if spec.values == "none" else value_dim,
        key_dim=spec.head_dim,
        hidden=call.structure.hidden,
    )


def _entries(
    call: Call, shape: Shape, request: Request, lengths: list[int]
) -> "tuple[Shape, Optional[tuple[int, ...]], Any]":
    """The shape of a call's entries, their rows where they are packed, and their offsets."""
    at = request.at.known()
    rows: Optional[tuple[int, ...]] = None
    if at.query_starts is not None:
        starts = at.query_starts
        rows = tuple(b - a for a, b in zip(starts, starts[1:]))
    own = rows or (shape.query_len,) * len(lengths)
    if len(own) != len(lengths) or (rows is None and shape.batch != len(lengths)):
        entries = shape.batch if rows is None else len(own)
        raise InvalidArgument("attention", "sequences", f"one for each of the {entries} entries", str(len(lengths)))
    if isinstance(at.offset, tuple) and len(at.offset) != len(lengths):
        expected = f"as many offsets as entries, {len(lengths)}"
        raise InvalidArgument("attention", "query_offset", expected, str(len(at.offset)))
    shape = dataclasses.replace(shape, batch=len(lengths), query_len=max((*own, 0)))
    offset = at.offset
    if offset is None:
        offset = tuple(length - n for length, n in zip(lengths, own))
        offset = offset[0] if rows is None and len(set(offset)) == 1 else offset
    return shape, rows, offset


def _plan_for(call: Call, shape: Shape, dtype: str, request: Request, lengths: list[int]) -> Any:
    shape, rows, offset = _entries(call, shape, request, lengths)
    if by_sizes(call):
        return plan_of_sizes(call, PlanKey(call.structure, shape, dtype, offset, rows, call.library))
    capacity = _LEAST_CAPACITY
    while capacity < shape.key_len:
        capacity *= 2
    return known_plan(PlanKey(call.structure, dataclasses.replace(shape, key_len=capacity), dtype))


def explain(call: Call, query: Any, layer: LayerOfCache, sequences: Any, request: Request) -> str:
    """What `attend` would do, for the lengths that the sequences have now."""
    query = library_of(query).cast(query)
    views = layer._views(sequences, "explain")
    lengths = [view.length for view in views]
    shape, rows, offset = _entries(call, _shape(query, layer, views, call), request, lengths)
    dtype = dtype_name(query, "query")
    if by_sizes(call):
        plan = plan_of_sizes(call, PlanKey(call.structure, shape, dtype, offset, rows, call.library))
    else:
        plan = known_plan(PlanKey(call.structure, shape, dtype))
    return plan.explain([offset] if isinstance(offset, int) else list(offset))


__all__ = ["attend", "check_cache", "explain"]
