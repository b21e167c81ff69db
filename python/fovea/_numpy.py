"""Calls on NumPy arrays (with ml_dtypes' bf16), and on arrays with `__dlpack__` that no other library owns."""

from __future__ import annotations

from typing import Any, Optional, Sequence

import numpy as np

from . import _core, _recurrence_engine, _scans_engine
from ._arrays import LONG_NAMES, Library, check_unmasked, described, dtype_name, library_of
from ._engine import Request, forward, gradients, operands, results
from ._errors import InvalidArgument
from ._recurrence_engine import Ready
from ._spec import Call, Shape, plan_for
from ._value import is_array
from .rope import positions_of, table


class NumPy(Library):
    def empty(self, shape: tuple[int, ...], dtype: str, like: Any) -> Any:
        if dtype == "bf16":
            return np.empty(shape, like.dtype)  # ml_dtypes' own
        return np.empty(shape, LONG_NAMES[dtype])

    def output(self, shape: tuple[int, ...], dtype: str, query: Any, row_major: bool) -> Any:
        return self.empty(shape, dtype, query)

    def like(self, x: Any) -> Any:
        return np.empty(x.shape, x.dtype)

    def operand(self, x: Any) -> Any:
        if isinstance(x, np.ndarray) and x.ndim and x.shape[-1] > 1 and x.strides[-1] != x.itemsize:
            return np.ascontiguousarray(x)
        return x

    def parameter(self, x: Any, dtype: str, argument: str, function: str = "attention") -> Any:
        check_unmasked(function, argument, x)
        own = library_of(x)
        if own is not self and is_array(x) and own.wants_gradient(x):  # which would be lost
            expected = f"an array that wants no gradient, or all arrays of its library ({own.conversion})"
            raise InvalidArgument(function, argument, expected, f"{own.noun} that requires grad")
        if isinstance(x, np.ndarray) and x.dtype == LONG_NAMES[dtype]:
            return self.operand(x)
        try:
            # NumPy would convert these to numbers too: None (to NaN), texts, dates, the real part of a complex
            # number.
            made = x if isinstance(x, np.ndarray) else np.asarray(x)
            if x is None or made.dtype.kind in "cSUmM":
                raise TypeError
            made = made.astype(LONG_NAMES[dtype])
        except Exception:  # whatever an object's __array__ or __float__ raises
            raise InvalidArgument(function, argument, "an array of numbers", described(x)) from None
        return self.operand(made)

    def row_major(self, x: Any) -> Any:
        return np.ascontiguousarray(x) if isinstance(x, np.ndarray) else x

    def truth_bytes(self, x: Any, name: str) -> Any:
        function, _, argument = name.rpartition(".")
        check_unmasked(function, argument, x)
        try:
            found = np.asarray(x)
        except Exception:  # whatever an object's __array__ raises
            found = np.empty(0, object)
        if found.dtype.kind not in "bui":
            raise InvalidArgument(function, argument, "an array of truth values", described(x))
        return np.ascontiguousarray(found != 0).astype(np.uint8)

    def joined(self, a: Any, b: Any) -> Any:
        return np.concatenate([a, b], axis=-1)

    def result(self, x: Any, like: Any) -> Any:
        if isinstance(like, np.ndarray):
            return x
        namespace = getattr(like, "__array_namespace__", None)
        return namespace().from_dlpack(x) if namespace else x

    def attend(self, call: Call, query: Any, key: Any, value: Any, request: Request, seed: Any, out: Any) -> Any:
        dtype = dtype_name(query, "query")
        shape = Shape.of(query, key, value, call)
        chosen = plan_for(call, shape, dtype, request.at)
        given = operands(call, query, key, value, dtype)
        return results(forward(chosen, call, given, shape, dtype, request, out), query, request)

    def gradients(
        self, call: Call, query: Any, key: Any, value: Any, request: Request, losses: dict[str, Any]
    ) -> dict[str, Any]:
        return gradients(call, query, key, value, request, losses)

    def recur(
        self, structure: Any, arrays: dict[str, Any], tokens: Any, wants_state: bool, out: Any, final_state: Any
    ) -> tuple[Any, Any]:
        outputs = Ready(structure, arrays, tokens).forward(wants_state, out=out, final_state=final_state)
        return outputs.get("output"), outputs.get("final_state")

    def recurrence_gradients(
        self, structure: Any, arrays: dict[str, Any], tokens: Any, losses: dict[str, Any]
    ) -> dict[str, Any]:
        return _recurrence_engine.gradients(structure, arrays, tokens, losses)

    def scan(
        self, kind: Any, option: str, arrays: dict[str, Any], tokens: Any, wants_state: bool
    ) -> tuple[Any, Any]:
        return _scans_engine.run(kind, option, arrays, tokens, wants_state)

    def rotate(self, x: Any, rope: str, table_positions: int, first: int, positions: Optional[Sequence[int]]) -> Any:
        dtype = dtype_name(x, "x")
        out = self.empty(tuple(x.shape), dtype, x)
        listed = None if positions is None else list(positions)
        table(rope, table_positions, dtype).rotate(self.operand(x), first, listed, out, False)
        return self.result(out, x)

    def rotate_by_tables(self, x: Any, cos: Any, sin: Any, interleaved: bool, positions: Any) -> Any:
        first, listed = positions_of(positions, int(x.shape[0]), int(x.shape[2]))
        out = self.empty(tuple(x.shape), dtype_name(x, "x"), x)
        _core.rotate_by_tables(cos, sin, interleaved, self.operand(x), first, listed, out, False)
        return self.result(out, x)


LIBRARY = NumPy()
