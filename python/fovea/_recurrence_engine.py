"""Splits the arguments of a recurrence into its structure and its arrays, and hands them to the engine."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any, Optional, Sequence

from . import _core, recurrences
from ._arrays import Library, check_unmasked, compute_dtype, described, dtype_name, library_of
from ._errors import InvalidArgument
from ._value import integers, is_array, real, shown
from .recurrences import _Part

FUNCTION = "recurrence"

# The engine's names of arrays, in the order in which an operator takes them, and the names by which a caller knows
# them.
NAMES = {
    "query": "query",
    "key": "key",
    "value": "value",
    "log_decay": "decay.log_decay",
    "beta": "write.beta",
    "erase": "write.erase",
    "a": "write.a",
    "b": "write.b",
    "bonus": "read.bonus",
    "self_weight": "read.self_weight",
    "initial_state": "initial_state",
}
# Those in the dtype of the keys. The others are f32, or f64 for f64.
STORED = frozenset({"query", "key", "value", "erase", "a", "b"})
# Those that the engine reads as one block of memory.
_BLOCKS = frozenset({"bonus", "initial_state"})
# Saved states have at most this many times the numbers of queries, keys, values and outputs, as in
# autograd::recurrence: 1 at 64 channels and 2 at 128, but 4 at 256, which backward computes again.
_MOST_SAVED = 3

_PARTS: dict[str, tuple[type[_Part], _Part]] = {
    "feature_map": (recurrences.FeatureMap, recurrences.IdentityFeatures()),
    "decay": (recurrences.Decay, recurrences.NoDecay()),
    "write": (recurrences.Write, recurrences.AdditiveWrite()),
    "read": (recurrences.Read, recurrences.AfterWrite()),
    "normalizer": (recurrences.StateNormalizer, recurrences.NoNormalizer()),
}
SPEC = frozenset({*_PARTS, "scale"})


@dataclasses.dataclass(frozen=True)
class Structure:
    """A spec without its arrays."""

    # The engine's names of the feature map, decay, write, read and normaliser.
    parts: tuple[str, ...]
    epsilon: float
    scale: Optional[float]

    @property
    def sums_keys(self) -> bool:
        return self.parts[4] == "sum"


@dataclasses.dataclass(frozen=True)
class Tokens:
    """Which tokens a call has: packed sequences and padding."""

    # Numbers, or a tensor of them; None: each batch entry is a sequence.
    starts: Any = None
    # [batch, len] of truth values; None: all.
    present: Any = None


def take_apart(
    *,
    feature_map: Any = None,
    decay: Any = None,
    write: Any = None,
    read: Any = None,
    normalizer: Any = None,
    scale: Any = None,
) -> tuple[Structure, dict[str, Any]]:
    """(the structure, the arrays of its parts by the engine's names)."""
    given = {"feature_map": feature_map, "decay": decay, "write": write, "read": read, "normalizer": normalizer}
    parts = {name: _checked(name, x) for name, x in given.items()}
    arrays: dict[str, Any] = {}
    for part in parts.values():
        arrays.update(part._arrays())
    epsilon = getattr(parts["normalizer"], "epsilon", 0.0)
    structure = Structure(
        tuple(part._name for part in parts.values()),
        real(epsilon, "KeySum.epsilon"),
        None if scale is None else real(scale, f"{FUNCTION}.scale"),
    )
    return structure, arrays


def _checked(argument: str, value: Any) -> Any:
    kind, default = _PARTS[argument]
    if value is None:
        return default
    if isinstance(value, type) and issubclass(value, kind):
        name = value.__name__
        raise InvalidArgument(FUNCTION, argument, f"a value, fovea.{name}(...)", f"the class {name}")
    if not isinstance(value, kind) or not value._name:
        raise InvalidArgument(FUNCTION, argument, f"a {kind.__name__} of fovea", shown(value))
    return value


def starts_of(x: Any, function: str = FUNCTION) -> Optional[tuple[int, ...]]:
    """sequence_starts as numbers."""
    if x is None:
        return None
    starts = integers(x, f"{function}.sequence_starts")
    if not starts:
        raise InvalidArgument(function, "sequence_starts", "numbers from 0 to the number of tokens", "none")
    return starts


def present_of(library: Library, present: Any, shape: tuple[int, int], function: str = FUNCTION) -> Any:
    """Bytes of the truth values of `present`, [batch, length]; None: all tokens are there."""
    if present is None:
        return None
    found = library.truth_bytes(present, f"{function}.present")
    if tuple(found.shape) != shape:
        raise InvalidArgument(
            function, "present", f"truth values of [batch, length] {list(shape)}", described(present)
        )
    return found


@dataclasses.dataclass(frozen=True)
class Sizes:
    """The sizes of one call."""

    entries: int
    num_query_heads: int
    num_key_heads: int
    num_heads: int
    length: int
    key_dim: int
    value_dim: int

    @staticmethod
    def of(query: Any, key: Any, value: Any) -> "Sizes":
        k, v = _four("key", key), _four("value", value)
        q = (k[0], v[1], k[2], k[3]) if query is None else _four("query", query)
        if q[3] != k[3]:  # the engine would see it too, but takes the key's for the plan's
            raise InvalidArgument(FUNCTION, "query", f"a key_dim of {k[3]}, as the key has", described(query))
        return Sizes(k[0], q[1], k[1], v[1], k[2], k[3], v[3])

    @property
    def output(self) -> tuple[int, int, int, int]:
        return (self.entries, max(self.num_query_heads, self.num_heads), self.length, self.value_dim)

    def state(self, structure: Structure, sequences: int) -> tuple[int, int, int, int]:
        return (sequences, self.num_heads, self.key_dim, self.value_dim + structure.sums_keys)


def _four(argument: str, x: Any) -> tuple[int, int, int, int]:
    try:
        shape = tuple(int(n) for n in getattr(x, "shape", ()))
    except (TypeError, ValueError):  # an object that only looks like an array
        shape = ()
    check_unmasked(FUNCTION, argument, x)
    if not is_array(x) or len(shape) != 4:
        raise InvalidArgument(FUNCTION, argument, "[batch, heads, length, dim]", described(x))
    return shape


@functools.lru_cache(maxsize=256)
def _known_plan(structure: Structure, sizes: tuple[int, ...], dtype: str) -> "_core.RecurrencePlan":
    s = structure
    return _core.make_recurrence_plan(list(s.parts), s.epsilon, s.scale, list(sizes), dtype, "")


def plan_for(
    structure: Structure, sizes: Sizes, dtype: str, starts: Optional[tuple[int, ...]]
) -> "_core.RecurrencePlan":
    batch, length = sizes.entries, sizes.length
    if starts is not None:
        batch = len(starts) - 1
        # Numbers that descend are refused by the engine, which looks at them.
        length = max((end - begin for begin, end in zip(starts, starts[1:])), default=0)
        length = min(max(length, 0), sizes.length)
    heads = (sizes.num_query_heads, sizes.num_key_heads, sizes.num_heads)
    return _known_plan(structure, (batch, *heads, length, sizes.key_dim, sizes.value_dim), dtype)


class Ready:
    """A call for the engine: its plan, and its arrays in layouts and dtypes that the engine accepts."""

    def __init__(
        self, structure: Structure, arrays: dict[str, Any], tokens: Tokens, function: str = FUNCTION
    ) -> None:
        self.structure, self.function = structure, function
        query, key, value = arrays.get("query"), arrays["key"], arrays["value"]
        self.library = library = library_of(key)
        self.dtype = dtype_name(key, "key", FUNCTION)
        self.sizes = Sizes.of(query, key, value)
        self.starts = starts_of(tokens.starts)
        self.sequences = self.sizes.entries if self.starts is None else len(self.starts) - 1
        self.plan = plan_for(structure, self.sizes, self.dtype, self.starts)
        self.inputs = {name: self._operand(name, x) for name, x in arrays.items() if x is not None}
        self.present = present_of(library, tokens.present, (self.sizes.entries, self.sizes.length))

    def _operand(self, name: str, x: Any) -> Any:
        library = self.library
        own = library_of(x)
        check_unmasked(FUNCTION, NAMES[name], x)
        if own.follows and own is not library:  # gradients would be lost silently
            expected = f"an array of the key's library ({own.conversion})"
            raise InvalidArgument(FUNCTION, NAMES[name], expected, f"{own.noun}, {described(x)}")
        if name not in STORED:
            x = library.parameter(x, compute_dtype(self.dtype), NAMES[name], FUNCTION)
        elif not is_array(x):
            raise InvalidArgument(FUNCTION, NAMES[name], "an array in the dtype of the key", described(x))
        if name in _BLOCKS or len(x.shape) < 3:
            return library.row_major(x)
        # Gates of tokens may be strided in every axis: a copy of a transposed one would be wasted.
        return library.view(x) if len(x.shape) == 3 else library.operand(x)

    def _tokens(self) -> tuple[list[int], Any]:
        present = None if self.present is None else self.library.handed({"": self.present})[""]
        return list(self.starts or ()), present

    def forward(
        self,
        return_state: bool,
        denominator: bool = False,
        out: Any = None,
        final_state: Any = None,
        saves: bool = False,
    ) -> dict[str, Any]:
        """ "output" if there is a query, "final_state" and "denominator" as far as requested.

        Args:
            saves: also "saved_states", which spare backward a third of its time, unless they are too large.
        """
        library, outputs = self.library, {}
        like = self.inputs["value"]
        if "query" in self.inputs:
            if like.shape[1] != self.sizes.output[1]:
                like = self.inputs["query"]
            outputs["output"] = library.output(self.sizes.output, self.dtype, like, False) if out is None else out
        wide = compute_dtype(self.dtype)
        if final_state is not None:
            outputs["final_state"] = final_state
        elif return_state:
            shape = self.sizes.state(self.structure, self.sequences)
            outputs["final_state"] = library.empty(shape, wide, like)
        if denominator and self.structure.sums_keys and "query" in self.inputs:
            outputs["denominator"] = library.empty(self.sizes.output[:3], wide, like)
        size = self._saved_size() if saves else 0
        if size:
            outputs["saved_states"] = library.kept(size, wide)
        given = library.handed(self.inputs)
        self.plan.recur(self.function, given, library.handed(outputs), *self._tokens())
        for x in (out, final_state):
            library_of(x).wrote(x)  # either may be of another library than the key
        return outputs

    def _saved_size(self) -> int:
        rows = [tuple(self.inputs[name].shape) for name in ("query", "key", "value") if name in self.inputs]
        if "query" in self.inputs:
            rows.append(self.sizes.output)
        given = self.library.handed(self.inputs)
        size = self.plan.saved_states_size(self.function, given, *self._tokens())
        return size if size <= _MOST_SAVED * sum(map(math.prod, rows)) else 0

    def backward(self, loss: dict[str, Any], wanted: Sequence[str]) -> dict[str, Any]:
        """Derivatives by the inputs named in `wanted`.

        Args:
            loss: "d_output" and "d_final_state", at least one of them; for `KeySum` with d_output also "output" and
                "denominator"; optionally "saved_states".
        """
        library, results = self.library, {}
        for name in wanted:
            x = self.inputs[name]
            if name in STORED:
                results[name] = library.like(x)
            else:
                results[name] = library.empty(tuple(x.shape), compute_dtype(self.dtype), x)
        if results:
            given, of, into = library.handed(self.inputs), library.handed(loss), library.handed(results)
            self.plan.recur_backward(self.function, given, of, into, *self._tokens())
        return results

    def loss(self, d_output: Any, d_final_state: Any) -> dict[str, Any]:
        """The losses in layouts and dtypes that the engine accepts."""
        found: dict[str, Any] = {}
        for name, x in (("d_output", d_output), ("d_final_state", d_final_state)):
            check_unmasked(FUNCTION, name, x)
        if d_output is not None:
            found["d_output"] = self.library.operand(d_output)
        if d_final_state is not None:
            wide = compute_dtype(self.dtype)
            state = self.library.parameter(d_final_state, wide, "d_final_state", FUNCTION)
            found["d_final_state"] = self.library.row_major(state)
        return found


def gradients(
    structure: Structure, arrays: dict[str, Any], tokens: Tokens, losses: dict[str, Any]
) -> dict[str, Any]:
    """`Library.recurrence_gradients` by the engine, for a library whose arrays it reads."""
    ready = Ready(structure, arrays, tokens, "recurrence_gradients")
    loss = ready.loss(losses.get("d_output"), losses.get("d_final_state"))
    if structure.sums_keys and "d_output" in loss:
        loss.update(ready.forward(False, denominator=True))
    return {NAMES[name]: x for name, x in ready.backward(loss, list(ready.inputs)).items()}


__all__ = [
    "FUNCTION",
    "NAMES",
    "Ready",
    "SPEC",
    "STORED",
    "Sizes",
    "Structure",
    "Tokens",
    "gradients",
    "plan_for",
    "present_of",
    "starts_of",
    "take_apart",
]
