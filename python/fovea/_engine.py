"""Hands a call's structure and arrays to the engine, and brings its results back."""

from __future__ import annotations

import dataclasses
import random
from typing import Any, Iterable, Sequence

from . import _core
from ._arrays import check_unmasked, compute_dtype, described, dtype_name, library_of
from ._errors import InvalidArgument
from ._positions import Positions, positions
from ._properties import has_constant_weights
from ._spec import Call, Shape, plan_for
from ._value import check_no_gradient, integer, integers, is_array, shown, truth


@dataclasses.dataclass(frozen=True)
class Request:
    """The options of one call: what it returns besides the output, and its arguments that are not arrays."""

    at: Positions = Positions()
    seed: int = 0
    weight_heads: tuple[int, ...] = ()
    weight_rows: tuple[int, ...] = ()
    lse: bool = False
    weights: bool = False
    # The output is row-major whatever the strides of the query. If False, a tensor's output has its query's order
    # of axes.
    row_major: bool = False

    def options(self, key_lengths: Any) -> "_core.CallOptions":
        at = self.at.known()
        each = isinstance(at.offset, tuple)
        return _core.CallOptions(
            None if each else at.offset,
            list(at.offset) if each else [],
            list(at.query_starts or ()),
            list(at.key_starts or ()),
            list(integers(key_lengths, "KeyLengths.lengths")),
            list(self.weight_heads),
            list(self.weight_rows),
            self.seed,
            self.seed,
        )

    def weights_shape(self, shape: Shape) -> tuple[int, int, int, int]:
        return (
            shape.batch,
            len(self.weight_heads) or shape.num_query_heads,
            len(self.weight_rows) or shape.query_len,
            self.at.longest_keys(shape.key_len),
        )


# A generator of our own: a program may have seeded `random` for itself.
_SEEDS = random.SystemRandom()


def make_request(
    query_offset: Any = None,
    seed: Any = None,
    weight_heads: Any = None,
    weight_rows: Any = None,
    lse: bool = False,
    weights: bool = False,
    query_starts: Any = None,
    key_starts: Any = None,
) -> Request:
    if seed is None:
        seed = _SEEDS.getrandbits(63)
    number = seed if isinstance(seed, int) and not isinstance(seed, bool) else int(integer(seed, "attention.seed", bits=64))
    if not 0 <= number < 1 << 64:
        raise InvalidArgument("attention", "seed", "a number in [0, 2^64)", shown(number))
    return Request(
        positions(query_offset, query_starts, key_starts),
        number,
        _some(weight_heads, "weight_heads"),
        _some(weight_rows, "weight_rows"),
        truth(lse, "attention.return_lse"),
        truth(weights, "attention.return_weights"),
    )


def _some(chosen: Any, argument: str) -> tuple[int, ...]:
    if chosen is None:
        return ()
    found = integers(chosen, f"attention.{argument}")
    if not found or not all(0 <= n < 1 << 40 for n in found):
        raise InvalidArgument(
            "attention", argument, "numbers of at least 0, one or more; None for all", str(list(found))[:80]
        )
    return found


def seen(x: Any) -> Any:
    """An array that has `__dlpack__` and nothing else becomes a NumPy array on the same memory."""
    if x is None:
        return x
    try:
        if is_array(x) or not hasattr(x, "__dlpack__"):
            return x
        import numpy as np

        return np.from_dlpack(x)
    except Exception:  # not in the CPU's memory, of a dtype that NumPy lacks, or not an array: refused later, with the argument's name
        return x


def operands(call: Call, query: Any, key: Any, value: Any, dtype: str) -> dict[str, Any]:
    """The arrays by the engine's names, in layouts and dtypes that it accepts."""
    library = library_of(query)
    found = {"query": query, "key": key, "value": value}
    for name, x in found.items():
        own = library_of(x)
        if own.follows and own is not library:  # gradients would be lost silently
            expected = f"an array of the query's library ({own.conversion})"
            raise InvalidArgument("attention", name, expected, f"{own.noun}, {described(x)}")
    result = {name: library.operand(x) for name, x in found.items() if x is not None}
    for name, x in call.parameters.items():
        result[name] = library.operand(library.parameter(x, compute_dtype(dtype), name))
    return result


def forward(
    plan: "_core.Plan",
    call: Call,
    inputs: dict[str, Any],
    shape: Shape,
    dtype: str,
    request: Request,
    out: Any = None,
    cache: Sequence[Any] = (),
) -> dict[str, Any]:
    """ "output", "log_sum_exp" and "weights", as far as requested.

    Args:
        cache: the views that take the place of key and value.
    """
    library, query = library_of(inputs["query"]), inputs["query"]
    outputs: dict[str, Any] = {}
    sizes = (shape.batch, shape.num_query_heads, shape.query_len, shape.value_dim)
    if shape.value_dim:
        outputs["output"] = library.output(sizes, dtype, query, request.row_major) if out is None else out
    if request.lse:
        outputs["log_sum_exp"] = library.empty(sizes[:3], compute_dtype(dtype), query)
    if request.weights or not shape.value_dim:
        outputs["weights"] = library.empty(request.weights_shape(shape), compute_dtype(dtype), query)
    options = request.options(call.key_lengths)
    plan.attend("attention", library.handed(inputs), library.handed(outputs), options, list(cache))
    if out is not None:
        library_of(out).wrote(out)  # it may be of another library than the query
    return outputs


def backward(
    plan: "_core.Plan",
    call: Call,
    inputs: dict[str, Any],
    loss: dict[str, Any],
    wanted: Sequence[str],
    request: Request,
) -> dict[str, Any]:
    """Derivatives with respect to the inputs named in `wanted`."""
    library, query = library_of(inputs["query"]), inputs["query"]
    dtype = dtype_name(query, "query")
    results = {}
    for name in wanted:
        if name in ("query", "key", "value"):
            results[name] = library.like(inputs[name])
        else:
            results[name] = library.empty(tuple(inputs[name].shape), compute_dtype(dtype), query)
    given, of, wanted_of = library.handed(inputs), library.handed(loss), library.handed(results)
    plan.attend_backward("gradients", given, of, wanted_of, request.options(call.key_lengths))
    return results


def gradients(
    call: Call, query: Any, key: Any, value: Any, request: Request, losses: dict[str, Any]
) -> dict[str, Any]:
    """`Library.gradients` by the engine, for a library whose arrays it reads."""
    dtype = dtype_name(query, "query")
    shape = Shape.of(query, key, value, call)
    plan = plan_for(call, shape, dtype, request.at)
    inputs = operands(call, query, key, value, dtype)
    library = library_of(query)
    for name, x in losses.items():
        check_unmasked("gradients", name, x)
    loss = {name: library.operand(x) for name, x in losses.items()}
    if "d_output" in loss:
        loss.update(forward(plan, call, inputs, shape, dtype, request))
    return backward(plan, call, inputs, loss, _differentiable(call, inputs), request)


def _differentiable(call: Call, names: Iterable[str]) -> list[str]:
    """The inputs that have a derivative: none passes through constant weights to the scores."""
    if not has_constant_weights(call.structure.normalizer):
        return list(names)
    return [name for name in names if name == "value" or name.startswith("weight_mods")]


def check_unasked(request: Request, value: Any, out: Any) -> None:
    """Throws for a choice of heads or rows when no weights are returned, and for an `out` that cannot be one."""
    for name, chosen in (("weight_heads", request.weight_heads), ("weight_rows", request.weight_rows)):
        if chosen and not request.weights and value is not None:
            raise InvalidArgument("attention", name, "None without return_weights=True", shown(list(chosen)))
    if value is None and out is not None:
        raise InvalidArgument("attention", "out", "None: without values there is no output", described(out))
    check_out("attention", "out", out)


def check_out(function: str, argument: str, out: Any) -> None:
    """Throws for an array of the caller's whose change would be hidden: by a mask, or from autograd."""
    check_unmasked(function, argument, out)
    check_no_gradient(function, argument, out)


def results(outputs: dict[str, Any], like: Any, request: Request) -> Any:
    """The requested outputs of `forward` in the library of `like`: an array, or a tuple of several."""
    names = [
        *(["output"] if "output" in outputs else []),
        *(["log_sum_exp"] if request.lse else []),
        *(["weights"] if "weights" in outputs else []),
    ]
    library = library_of(like)
    found = tuple(library.result(outputs[name], like) for name in names)
    return found[0] if len(found) == 1 else found


__all__ = [
    "Request",
    "backward",
    "check_out",
    "check_unasked",
    "forward",
    "gradients",
    "make_request",
    "operands",
    "results",
    "seen",
]
