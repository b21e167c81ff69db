"""Mamba-1's scan and the short convolution: their arrays, plans and calls on the arrays of any library."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, Callable, Optional, Sequence

from . import _core
from ._arrays import check_unmasked, compute_dtype, described, dtype_name, library_of
from ._errors import InvalidArgument
from ._recurrence_engine import Tokens, present_of, starts_of
from ._value import is_array


@dataclasses.dataclass(frozen=True)
class Kind:
    """A kind of call."""

    function: str
    # The engine's names of the arrays in the order in which an operator takes them, and how many axes each has.
    axes: dict[str, int]
    # Those that a call must have, and those in the dtype of x. The others are f32, or f64 for f64.
    needed: frozenset[str]
    stored: frozenset[str]
    # From the option and the sizes (batch, len, ...) to a plan.
    plan: Callable[[str, tuple[int, ...], str], Any]
    # The sizes of a plan behind batch and len, and the shape of a state behind the sequences.
    sizes: Callable[[dict[str, Any]], tuple[int, ...]]
    state: Callable[[dict[str, Any]], tuple[int, ...]]

    # Kinds are compared as constants are.
    __hash__ = object.__hash__


@functools.lru_cache(maxsize=256)
def _scan_plan(option: str, sizes: tuple[int, ...], dtype: str) -> Any:
    return _core.make_selective_scan_plan(option, list(sizes), dtype)


@functools.lru_cache(maxsize=256)
def _conv_plan(option: str, sizes: tuple[int, ...], dtype: str) -> Any:
    return _core.make_causal_conv_plan(option, list(sizes), dtype)


SCAN = Kind(
    "selective_scan",
    {"x": 3, "delta": 3, "a": 2, "b": 4, "c": 4, "d": 1, "z": 3, "delta_bias": 1, "initial_state": 3},
    frozenset({"x", "delta", "a", "b", "c"}),
    frozenset({"x", "delta", "b", "c", "z"}),
    _scan_plan,
    lambda given: (int(given["x"].shape[2]), int(given["b"].shape[2]), int(given["a"].shape[1])),
    lambda given: (int(given["x"].shape[2]), int(given["a"].shape[1])),
)
CONV = Kind(
    "causal_conv",
    {"x": 3, "weight": 2, "bias": 1, "initial_state": 3},
    frozenset({"x", "weight"}),
    frozenset({"x"}),
    _conv_plan,
    lambda given: (int(given["x"].shape[2]), int(given["weight"].shape[1])),
    lambda given: (int(given["weight"].shape[1]) - 1, int(given["x"].shape[2])),
)
# The arrays that bring the sizes of a plan.
_OF_SIZES = {"width": "weight", "groups": "b", "state_dim": "a"}
KINDS = {kind.function: kind for kind in (SCAN, CONV)}


def checked(kind: Kind, arrays: dict[str, Any]) -> None:
    """Throws unless each array that is there has its axes."""
    for name, axes in kind.axes.items():
        x = arrays.get(name)
        check_unmasked(kind.function, name, x)
        if x is None and name not in kind.needed:
            continue
        if not is_array(x) or len(getattr(x, "shape", ())) != axes:
            raise InvalidArgument(kind.function, name, f"an array of {axes} axes", described(x))


class Ready:
    """A call for the engine: its plan, and its arrays in layouts and dtypes that the engine accepts."""

    def __init__(self, kind: Kind, option: str, arrays: dict[str, Any], tokens: Tokens) -> None:
        checked(kind, arrays)
        self.kind = kind
        x = arrays["x"]
        self.library = library = library_of(x)
        self.dtype = dtype_name(x, "x", kind.function)
        self.shape = tuple(int(n) for n in x.shape)
        self.starts = starts_of(tokens.starts, kind.function)
        batch, length = self.shape[:2]
        if self.starts is not None:
            pieces = [end - begin for begin, end in zip(self.starts, self.starts[1:])]
            # Numbers that descend are refused by the engine, which looks at them.
            batch, length = len(pieces), min(max([0, *pieces]), length)
        self.state = (batch, *kind.state(arrays))
        self.plan = self._plan(option, (batch, length, *kind.sizes(arrays)))
        self.inputs = {name: self._operand(name, x) for name, x in arrays.items() if x is not None}
        self.present = present_of(library, tokens.present, (self.shape[0], self.shape[1]), kind.function)

    def _plan(self, option: str, sizes: tuple[int, ...]) -> Any:
        try:
            return self.kind.plan(option, sizes, self.dtype)
        except InvalidArgument as error:
            name = _OF_SIZES.get(error.argument.rpartition(".")[2], "x")
            got = f"{error.got} ({error.argument})"
            raise InvalidArgument(self.kind.function, name, error.expected, got) from None

    def _operand(self, name: str, x: Any) -> Any:
        library = self.library
        own = library_of(x)
        if own.follows and own is not library:  # gradients would be lost silently
            expected = f"an array of x's library ({own.conversion})"
            raise InvalidArgument(self.kind.function, name, expected, f"{own.noun}, {described(x)}")
        if name in self.kind.stored:
            return library.operand(x)
        return library.row_major(library.parameter(x, compute_dtype(self.dtype), name, self.kind.function))

    def _tokens(self) -> tuple[list[int], Any]:
        present = None if self.present is None else self.library.handed({"": self.present})[""]
        return list(self.starts or ()), present

    def forward(self, wants_state: bool) -> tuple[Any, Any]:
        """(the output, the final state or None)."""
        library, like = self.library, self.inputs["x"]
        outputs = {"output": library.empty(self.shape, self.dtype, like)}
        if wants_state:
            outputs["final_state"] = library.empty(self.state, compute_dtype(self.dtype), like)
        given = library.handed(self.inputs)
        self.plan.run(self.kind.function, given, library.handed(outputs), *self._tokens())
        return outputs["output"], outputs.get("final_state")

    def backward(self, d_output: Any, d_final_state: Any, wanted: Sequence[str]) -> dict[str, Any]:
        """Derivatives by the inputs named in `wanted`."""
        library, loss = self.library, {}
        for name, x in (("d_output", d_output), ("d_final_state", d_final_state)):
            check_unmasked(self.kind.function, name, x)
        wide = compute_dtype(self.dtype)
        if d_output is not None:
            loss["d_output"] = library.operand(d_output)
        if d_final_state is not None:
            state = library.parameter(d_final_state, wide, "d_final_state", self.kind.function)
            loss["d_final_state"] = library.row_major(state)
        results = {
            name: library.empty(
                tuple(self.inputs[name].shape), self.dtype if name in self.kind.stored else wide, self.inputs["x"]
            )
            for name in wanted
        }
        if results:
            given, of, into = library.handed(self.inputs), library.handed(loss), library.handed(results)
            self.plan.run_backward(self.kind.function, given, of, into, *self._tokens())
        return results


def gradients(
    kind: Kind, option: str, arrays: dict[str, Any], tokens: Tokens, d_output: Any, d_final_state: Any
) -> dict[str, Any]:
    ready = Ready(kind, option, arrays, tokens)
    return ready.backward(d_output, d_final_state, list(ready.inputs))


def run(
    kind: Kind, option: str, arrays: dict[str, Any], tokens: Tokens, wants_state: bool
) -> tuple[Any, Optional[Any]]:
    return Ready(kind, option, arrays, tokens).forward(wants_state)


__all__ = ["CONV", "KINDS", "Kind", "Ready", "SCAN", "checked", "gradients", "run"]
