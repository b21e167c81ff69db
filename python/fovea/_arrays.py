"""Arrays of any library, and which library owns one.

The library of the query decides for the whole call: how arrays are made and handed to the engine, and which code path
`attention` and `rotate` take. `Library` is the interface. NumPy's (`_numpy.py`) also serves arrays that have only
`__dlpack__`; PyTorch's is `torch/_library.py`. To add a library, write a module with a LIBRARY and add a row to
`_libraries.py`.
"""

from __future__ import annotations

from typing import Any, Callable, ClassVar, Optional, Sequence

from ._errors import InvalidArgument

_NAMES = {"float32": "f32", "float64": "f64", "bfloat16": "bf16", "float16": "f16"}
LONG_NAMES = {short: long for long, short in _NAMES.items()}

class Library:
    """The interface of a library of arrays."""

    # The classes of its arrays; empty: all arrays that no other library owns.
    arrays: ClassVar[tuple[type, ...]] = ()
    # For error texts: the name of its arrays, and how to convert an array of another library.
    noun: ClassVar[str] = "an array"
    conversion: ClassVar[str] = ""
    # Whether it records operations for gradients, which must not be lost silently.
    follows: ClassVar[bool] = False
    # Whether an array may stand for what a graph computes later, so that its values cannot be read yet.
    deferred: ClassVar[bool] = False

    def __reduce__(self) -> str:
        return "LIBRARY"  # there is one library in each module

    # Arrays.

    def empty(self, shape: tuple[int, ...], dtype: str, like: Any) -> Any:
        """An uninitialised row-major array of this dtype ("f32", ...)."""
        raise NotImplementedError

    def wrote(self, *arrays: Any) -> None:
        """Tells the library that the engine has written to a caller's arrays."""

    def kept(self, size: int, dtype: str) -> Any:
        """An uninitialised array of one axis, f32 or f64, at a multiple of 64 bytes. Its memory serves the next one that
        is asked for when it ends. Only libraries that record operations are asked."""
        raise NotImplementedError

    def output(self, shape: tuple[int, ...], dtype: str, query: Any, row_major: bool) -> Any:
        """An uninitialised array for the output of attention; `query` comes from `operand`."""
        raise NotImplementedError

    def like(self, x: Any) -> Any:
        """An uninitialised array for the derivative by x."""
        raise NotImplementedError

    def operand(self, x: Any) -> Any:
        """x with a contiguous innermost axis, copied if necessary."""
        raise NotImplementedError

    def parameter(self, x: Any, dtype: str, argument: str, function: str = "attention") -> Any:
        """x in the dtype that the plan accumulates in; x may be a number or a list."""
        raise NotImplementedError

    def view(self, x: Any) -> Any:
        """x with any strides, as the engine reads gates."""
        return x

    def row_major(self, x: Any) -> Any:
        """x as one block of memory, copied if necessary."""
        raise NotImplementedError

    def truth_bytes(self, x: Any, name: str) -> Any:
        """Truth values, or whole numbers of which 0 is False, as a row-major array of bytes 0 and 1. `name` is
        "function.argument"."""
        raise NotImplementedError

    def joined(self, a: Any, b: Any) -> Any:
        """a and b concatenated along the innermost axis."""
        raise NotImplementedError

    def result(self, x: Any, like: Any) -> Any:
        """x as an array of the library of `like`."""
        return x

    def handed(self, arrays: dict[str, Any]) -> dict[str, Any]:
        """The arrays in a form that the engine accepts."""
        return arrays

    def wants_gradient(self, x: Any) -> bool:
        """Whether the library would record operations on x."""
        return False

    # Masks.

    def mask(self, mask: Any) -> Any:
        """The argument of `mask=`. An array of this library is returned as a plain array with memory of its own."""
        return mask

    def indices(self, *arrays: Any) -> tuple[Any, ...]:
        """NumPy's index arrays as arrays of this library, for users' functions."""
        return arrays

    def truths(self, answer: Any) -> Any:
        """Truth values from NumPy's view of such a function's answer."""
        return answer

    # Calls.

    def seed_number(self, seed: Any) -> Any:
        """The part of `seed=` that can be checked before the call runs."""
        return seed

    def attend_plainly(self, query: Any, key: Any, value: Any, causal: bool) -> Any:
        """`fovea.attention` with no argument but these and the mask `Causal()`, by a shorter way with the same
        result; None: there is none for these arrays."""
        return None

    def attend(self, call: Any, query: Any, key: Any, value: Any, request: Any, seed: Any, out: Any) -> Any:
        """`fovea.attention` of a call that `take_apart` made.

        Args:
            call, request: a `Call`, and a `Request` whose seed is `seed_number(seed)`.
            seed: the caller's argument.
        """
        raise NotImplementedError

    def gradients(
        self, call: Any, query: Any, key: Any, value: Any, request: Any, losses: dict[str, Any]
    ) -> dict[str, Any]:
        """`fovea.gradients` of a call that `take_apart` made: an array for each input that has a derivative, by name.

        Args:
            losses: those of "d_output", "d_weights" and "advantage" that are given.
        """
        raise NotImplementedError

    def recur(
        self, structure: Any, arrays: dict[str, Any], tokens: Any, wants_state: bool, out: Any, final_state: Any
    ) -> tuple[Any, Any]:
        """`fovea.recurrence`: (the output or None, the final state or None).

        Args:
            structure, arrays: those of `_recurrence_engine.take_apart`, with query, key, value and initial_state.
        """
        raise NotImplementedError

    def recurrence_gradients(
        self, structure: Any, arrays: dict[str, Any], tokens: Any, losses: dict[str, Any]
    ) -> dict[str, Any]:
        """`fovea.recurrence_gradients`.

        Args:
            losses: those of "d_output" and "d_final_state" that are given.
        """
        raise NotImplementedError

    def scan(
        self, kind: Any, option: str, arrays: dict[str, Any], tokens: Any, wants_state: bool
    ) -> tuple[Any, Any]:
        """`fovea.selective_scan` or `fovea.causal_conv`: (the output, the final state or None).

        Args:
            kind, arrays: a `Kind` of `_scans_engine`, and arrays by its names.
        """
        raise NotImplementedError

    def seed_of_plan(self, call: Any, query: Any, key: Any, value: Any, seed: Any) -> Any:
        """The seed of a plan's call. Throws for arrays that a plan does not accept."""
        return seed

    def cast(self, x: Any) -> Any:
        """x in the dtype in which the library computes attention here."""
        return x

    def rotate(self, x: Any, rope: str, table_positions: int, first: int, positions: Optional[Sequence[int]]) -> Any:
        """`fovea.rotate` by a Rope. The positions of the rows are `first`, `first` + 1, ..., or those in
        `positions`."""
        raise NotImplementedError

    def rotate_by_tables(self, x: Any, cos: Any, sin: Any, interleaved: bool, positions: Any) -> Any:
        """`fovea.rotate` by RopeTables."""
        raise NotImplementedError


# From the package of an array's class to what finds its library.
_OWNERS: dict[str, Callable[[], Library]] = {}
_others: list[Library] = []


def serve(owners: dict[str, Callable[[], Library]], others: Library) -> None:
    """Says which libraries there are. The package calls it once, with the table of `_libraries.py`.

    Args:
        owners: from the package of an array's class to what finds its library.
        others: the library of all arrays that no other library owns.
    """
    _OWNERS.update(owners)
    _others[:] = [others]


def others() -> Library:
    """The library of all arrays that no other library owns."""
    return _others[0]


_of_type: dict[type, Library] = {}


def library_of(x: Any) -> Library:
    """The library that owns x, or NumPy's."""
    known = _of_type.get(type(x))
    return _found(type(x)) if known is None else known


def _found(kind: type) -> Library:
    library = others()
    for base in () if kind.__module__ == "builtins" else kind.__mro__:  # torch.compile does not follow these
        owner = _OWNERS.get(base.__module__.partition(".")[0])
        if owner is not None and issubclass(kind, owner().arrays):
            library = owner()
    _of_type[kind] = library
    return library


def dtype_name(array: Any, argument: str, function: str = "attention") -> str:
    """ "f32", "f64", "bf16" or "f16"."""
    try:
        name = str(array.dtype).rsplit(".", 1)[-1]
    except Exception:  # an object that only looks like an array may raise anything
        name = ""
    check_unmasked(function, argument, array)
    if name not in _NAMES or not hasattr(array, "shape"):
        raise InvalidArgument(
            function,
            argument,
            "an array of f32, f64, bf16 or f16 (NumPy, or with __dlpack__)",
            described(array),
        )
    return _NAMES[name]


def check_unmasked(function: str, argument: str, x: Any) -> None:
    """Throws for an array of numpy.ma, whose hidden elements would be read silently."""
    if hasattr(x, "filled") and hasattr(x, "mask"):
        raise InvalidArgument(
            function, argument, "an array without a mask in it (x.filled(...) makes one)", "a masked array"
        )


def described(x: Any) -> str:
    try:
        return f"{x.dtype} {list(x.shape)}"
    except Exception:
        return type(x).__name__


def compute_dtype(name: str) -> str:
    """The dtype in which a plan of this dtype accumulates and takes its parameters."""
    return "f64" if name == "f64" else "f32"
