"""Arrays of any library, and which library owns one.

The library that owns the query owns the call: it says how arrays are made and handed to the engine, and which way
`attention` and `rotate` take. What is asked of it stands in `Library`. NumPy's (`_numpy.py`) also serves what knows
`__dlpack__` alone; PyTorch's is `torch/_library.py`. A further library is a module with a LIBRARY, and a row of `_OWNERS`.
"""

from __future__ import annotations

from typing import Any, Callable, ClassVar, Optional, Sequence

from ._errors import InvalidArgument

_NAMES = {"float32": "f32", "float64": "f64", "bfloat16": "bf16", "float16": "f16"}
LONG_NAMES = {short: long for long, short in _NAMES.items()}

class Library:
    """What a library of arrays answers for."""

    # The classes of its arrays; none: whatever no other library has.
    arrays: ClassVar[tuple[type, ...]] = ()
    # What an array is called, and how an array of another library becomes one.
    noun: ClassVar[str] = "an array"
    conversion: ClassVar[str] = ""
    # Does it follow what is done with arrays, for gradients? They must not be lost without a word.
    follows: ClassVar[bool] = False
    # May an array stand for one of a graph, which nobody looks into before a call runs?
    deferred: ClassVar[bool] = False

    def __reduce__(self) -> str:
        return "LIBRARY"  # of the module of its class: there is one

    # Arrays.

    def empty(self, shape: tuple[int, ...], dtype: str, like: Any) -> Any:
        """Uninitialised, row by row, of this dtype ("f32", ...)."""
        raise NotImplementedError

    def output(self, shape: tuple[int, ...], dtype: str, query: Any, row_major: bool) -> Any:
        """For the attention of a query that `operand` gave."""
        raise NotImplementedError

    def like(self, x: Any) -> Any:
        """Uninitialised, for the derivative by x."""
        raise NotImplementedError

    def operand(self, x: Any) -> Any:
        """With a contiguous innermost axis: a copy where it has none."""
        raise NotImplementedError

    def parameter(self, x: Any, dtype: str, argument: str, function: str = "attention") -> Any:
        """In the dtype that the plan adds up in: numbers and lists too."""
        raise NotImplementedError

    def joined(self, a: Any, b: Any) -> Any:
        """Side by side, by the innermost axis."""
        raise NotImplementedError

    def result(self, x: Any, like: Any) -> Any:
        """As an array of the library that `like` comes from."""
        return x

    def handed(self, arrays: dict[str, Any]) -> dict[str, Any]:
        """In a form that the engine takes."""
        return arrays

    def wants_gradient(self, x: Any) -> bool:
        """Would the library follow what is made of it?"""
        return False

    # Masks.

    def mask(self, mask: Any) -> Any:
        """What `mask=` was given, as an array that is what its memory says where it is an array of this library."""
        return mask

    def indices(self, *arrays: Any) -> tuple[Any, ...]:
        """Index arrays of NumPy as arrays of this library, for the functions of its users."""
        return arrays

    def truths(self, answer: Any) -> Any:
        """What NumPy read of such a function's answer, as truth values."""
        return answer

    # Calls.

    def seed_number(self, seed: Any) -> Any:
        """What of `seed=` can be looked at before the call runs."""
        return seed

    def attend(self, call: Any, query: Any, key: Any, value: Any, request: Any, seed: Any, out: Any) -> Any:
        """`fovea.attention` of a spec taken apart.

        Args:
            call, request: a `Call`, and a `Request` whose seed is `seed_number(seed)`.
            seed: as the caller gave it.
        """
        raise NotImplementedError

    def seed_of_plan(self, call: Any, query: Any, key: Any, value: Any, seed: Any) -> Any:
        """The seed of a plan's call. Throws for arrays that a plan does not take."""
        return seed

    def rotate(self, x: Any, rope: str, table_positions: int, first: int, positions: Optional[Sequence[int]]) -> Any:
        """`fovea.rotate` by a Rope: the row's position is `first` and on, or stands in `positions`."""
        raise NotImplementedError

    def rotate_by_tables(self, x: Any, cos: Any, sin: Any, interleaved: bool, positions: Any) -> Any:
        """`fovea.rotate` by RopeTables."""
        raise NotImplementedError


def _torch() -> Library:
    from .torch._library import LIBRARY

    return LIBRARY


def others() -> Library:
    """The library of what no other owns."""
    from ._numpy import LIBRARY

    return LIBRARY


# The package that an array's class comes from → its library, which is imported when the first of its arrays comes: a
# program imports nothing here that it does not use. By a statement, which torch.compile follows.
_OWNERS: dict[str, Callable[[], Library]] = {"torch": _torch}
_of_type: dict[type, Library] = {}


def library_of(x: Any) -> Library:
    """The library that owns x, or NumPy's."""
    known = _of_type.get(type(x))
    return _found(type(x)) if known is None else known


def _found(kind: type) -> Library:
    library = others()
    for base in () if kind.__module__ == "builtins" else kind.__mro__:  # of which torch.compile does not follow those
        owner = _OWNERS.get(base.__module__.partition(".")[0])
        if owner is not None and issubclass(kind, owner().arrays):
            library = owner()
    _of_type[kind] = library
    return library


def dtype_name(array: Any, argument: str, function: str = "attention") -> str:
    """ "f32", "f64", "bf16" or "f16"."""
    try:
        name = str(array.dtype).rsplit(".", 1)[-1]
    except Exception:  # of an object that only looks like an array, anything
        name = ""
    if name not in _NAMES or not hasattr(array, "shape"):
        raise InvalidArgument(
            function,
            argument,
            "an array of f32, f64, bf16 or f16 (NumPy, or with __dlpack__)",
            described(array),
        )
    return _NAMES[name]


def described(x: Any) -> str:
    try:
        return f"{x.dtype} {list(x.shape)}"
    except Exception:
        return type(x).__name__


def compute_dtype(name: str) -> str:
    """In what a plan of this dtype adds up, and has its parameters."""
    return "f64" if name == "f64" else "f32"
