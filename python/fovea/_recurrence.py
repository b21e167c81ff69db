"""Recurrences: linear attention, gated and delta rules, and their gradients."""

from __future__ import annotations

from typing import Any, Optional

from . import _core
from ._arrays import described, dtype_name, library_of
from ._engine import check_out, seen
from ._errors import InvalidArgument, named
from ._recurrence_engine import FUNCTION, SPEC, Sizes, Tokens, plan_for, starts_of, take_apart
from ._value import shown, truth

__all__ = ["explain_recurrence", "list_recurrence_kernels", "recurrence", "recurrence_gradients"]


def recurrence(
    query: Any,
    key: Any,
    value: Any,
    *,
    feature_map: Any = None,
    decay: Any = None,
    write: Any = None,
    read: Any = None,
    normalizer: Any = None,
    scale: Optional[float] = None,
    initial_state: Any = None,
    sequence_starts: Any = None,
    present: Any = None,
    return_state: bool = False,
    out: Any = None,
    final_state: Any = None,
) -> Any:
    """features → decay → write → read → normalise: a head keeps a state S [key_dim, value_dim], and each token decays
    it, writes to it and reads from it (docs/recurrence.md). Causal by its nature; a token costs the same at any length.

    State head h uses the key head h // (heads // num_key_heads). One of num_query_heads and heads divides the other,
    and query heads and state heads are grouped alike; the output has the larger number of heads.

    Args:
        query: [batch, num_query_heads, length, key_dim] of f32, f64, bf16 or f16: a NumPy array, a PyTorch tensor, or
            anything with `__dlpack__`. Any strides; an innermost axis that is not contiguous costs a copy. None: no
            output, the final state alone.
        key: [batch, num_key_heads, length, key_dim].
        value: [batch, heads, length, value_dim]. Each of its heads has a state.
        feature_map: `EluPlusOne()`; None: `IdentityFeatures()`.
        decay: `ScalarDecay(g)`, ...; None: `NoDecay()`.
        write: `DeltaWrite(beta)`, ...; None: `AdditiveWrite()`.
        read: `BeforeDecay(bonus)`, ...; None: `AfterWrite()`.
        normalizer: `KeySum()`; None: `NoNormalizer()`.
        scale: multiplies the queries, behind the features; None: 1/sqrt(key_dim).
        initial_state: [sequences, heads, key_dim, value_dim], of f32 (f64 for f64), with one more column for
            `KeySum`; None: zeros. There is one sequence for each batch entry, or for each of sequence_starts.
        sequence_starts: a packed batch: sequence n has the tokens from sequence_starts[n] to sequence_starts[n + 1],
            from 0 to length (cu_seqlens of other libraries). The batch axis is then 1. Each sequence gives the bits
            of a call of its own.
        present: [batch, length] of truth values; False: padding, which is never read. Its output and its gradients
            are 0.
        return_state: also return the final state.
        out, final_state: writable arrays for the results. final_state may be the memory of initial_state, and is
            returned. None: new ones. Not with gradients.

    Returns:
        The output [batch, max(num_query_heads, heads), length, value_dim] in the query's dtype; with return_state or
        final_state the tuple (output, final state); without a query the final state.

    Raises:
        InvalidArgument: for shapes, dtypes and numbers that do not fit, among them a log_decay above 0.

    >>> import numpy as np
    >>> gates = fovea.ScalarDecay(np.full((1, 2, 4), -0.1))
    >>> out, state = fovea.recurrence(q, k, v, decay=gates, return_state=True)
    >>> out.shape, state.shape
    ((1, 2, 4, 8), (1, 2, 8, 8))
    """
    query, key, value, initial_state = seen(query), seen(key), seen(value), seen(initial_state)
    structure, arrays = take_apart(
        feature_map=feature_map, decay=decay, write=write, read=read, normalizer=normalizer, scale=scale
    )
    wants_state = truth(return_state, f"{FUNCTION}.return_state") or final_state is not None
    if query is None and not wants_state:
        raise InvalidArgument(FUNCTION, "query", "an array, or return_state=True", "None")
    if query is None and out is not None:
        raise InvalidArgument(FUNCTION, "out", "None: without queries there is no output", shown(out))
    for name, x in (("out", out), ("final_state", final_state)):
        check_out(FUNCTION, name, x)
    given = {"query": query, "key": key, "value": value, **arrays, "initial_state": initial_state}
    tokens = Tokens(sequence_starts, present)
    library = library_of(key)
    output, state = library.recur(structure, given, tokens, wants_state, out, final_state)
    output, state = (x if x is None else library.result(x, key) for x in (output, state))
    if query is None:
        return state
    return (output, state) if wants_state else output


@named("recurrence_gradients", FUNCTION)
def recurrence_gradients(
    query: Any,
    key: Any,
    value: Any,
    d_output: Any,
    *,
    d_final_state: Any = None,
    feature_map: Any = None,
    decay: Any = None,
    write: Any = None,
    read: Any = None,
    normalizer: Any = None,
    scale: Optional[float] = None,
    initial_state: Any = None,
    sequence_starts: Any = None,
    present: Any = None,
) -> dict[str, Any]:
    """Derivatives of a loss with respect to every array that `recurrence` took, for use without PyTorch.

    Args:
        d_output: the loss's derivative by the output, in the output's shape and dtype; None if the loss depends on
            the final state alone.
        d_final_state: the loss's derivative by the final state, in its shape; None: 0.
        The others: as in the call of `recurrence`, the initial state as it was before the call.

    Returns:
        Arrays by name: "query", "key", "value", "decay.log_decay", "write.beta", "write.erase", "write.a", "write.b",
        "read.bonus", "read.self_weight" and "initial_state", those that were given, in their shapes. Those of query,
        key, value, erase, a and b have their dtype, the others f32 (f64 for f64).

    >>> import numpy as np
    >>> beta = np.full((1, 2, 4), 0.1)
    >>> sorted(fovea.recurrence_gradients(q, k, v, np.ones_like(v), write=fovea.DeltaWrite(beta)))
    ['key', 'query', 'value', 'write.beta']
    """
    query, key, value, initial_state = seen(query), seen(key), seen(value), seen(initial_state)
    structure, arrays = take_apart(
        feature_map=feature_map, decay=decay, write=write, read=read, normalizer=normalizer, scale=scale
    )
    given = {"query": query, "key": key, "value": value, **arrays, "initial_state": initial_state}
    losses = {name: seen(x) for name, x in (("d_output", d_output), ("d_final_state", d_final_state)) if x is not None}
    if not losses:
        raise InvalidArgument(FUNCTION, "d_output", "an array, or d_final_state", "neither")
    if query is None and d_output is not None:
        raise InvalidArgument(FUNCTION, "d_output", "None: without queries there is no output", shown(d_output))
    library = library_of(key)
    found = library.recurrence_gradients(structure, given, Tokens(sequence_starts, present), losses)
    return {name: library.result(x, key) for name, x in found.items()}


@named("explain_recurrence", FUNCTION)
def explain_recurrence(query: Any, key: Any, value: Any, **arguments: Any) -> str:
    """What `recurrence` would do with these arguments: the kernel, why better kernels refused, the spec and the sizes.

    >>> kernel, rest = fovea.explain_recurrence(q, k, v, feature_map=fovea.EluPlusOne()).split("\\n", 1)
    >>> print(rest)
    elu+1 features, no decay, additive write, read after write, scale 0.35355339059327373
    batch 1, heads 2/2/2 of queries, keys, states, 4 tokens, key_dim 8, value_dim 8, f32
    """
    starts = starts_of(arguments.pop("sequence_starts", None))
    for name in ("initial_state", "present", "return_state", "out", "final_state"):
        arguments.pop(name, None)  # no plan depends on them
    unknown = set(arguments) - SPEC
    if unknown:
        raise TypeError(f"explain_recurrence() got an unexpected keyword argument {sorted(unknown)[0]!r}")
    query, key, value = seen(query), seen(key), seen(value)
    structure, _ = take_apart(**arguments)
    sizes, dtype = Sizes.of(query, key, value), dtype_name(key, "key", FUNCTION)
    for name, x in (("query", query), ("value", value)):
        wanted = (dtype, sizes.entries, sizes.length)
        if x is not None and (dtype_name(x, name, FUNCTION), x.shape[0], x.shape[2]) != wanted:
            expected = f"{dtype} [{sizes.entries}, heads, {sizes.length}, dim], as the key is"
            raise InvalidArgument(FUNCTION, name, expected, described(x))
    return plan_for(structure, sizes, dtype, starts).explain().rstrip("\n")


def list_recurrence_kernels() -> list[str]:
    """The kernels of recurrences by name, best first. FOVEA_ISA forces one of them, or an instruction set.

    >>> fovea.list_recurrence_kernels()[-1]
    'reference'
    """
    return _core.list_recurrence_kernels()
