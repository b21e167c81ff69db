"""The base class of scores, mods, masks and normalisers: immutable, compared by value, and printed as source code."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any, ClassVar

from ._arrays import library_of
from ._errors import InvalidArgument

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_):
        return lambda cls: cls


_MOST_ELEMENTS = 1000


def is_array(x: Any) -> bool:
    return hasattr(x, "shape") and hasattr(x, "dtype")


def check_no_gradient(function: str, argument: str, x: Any, reason: str = "") -> None:
    """Throws for an array whose gradient would be lost. `reason` ends what the error expected."""
    if is_array(x) and library_of(x).wants_gradient(x):
        expected = f"a tensor that wants no gradient{reason}"
        raise InvalidArgument(function, argument, expected, "one that requires grad")


def _plain(x: Any) -> Any:
    """x as numbers, strings and lists of them, for comparison of arrays, tuples and lists."""
    if is_array(x) and hasattr(x, "tolist"):
        return x.tolist()
    if isinstance(x, (list, tuple)):
        return [_plain(e) for e in x]
    return x


def _equal(a: Any, b: Any) -> bool:
    if a is b:
        return True
    try:
        return bool(_plain(a) == _plain(b))
    except RuntimeError:  # a tensor without values, as on PyTorch's device "meta", equals itself alone
        return False


def _text(x: Any) -> str:
    if is_array(x):
        if math.prod(int(n) for n in x.shape) <= _MOST_ELEMENTS and hasattr(x, "tolist"):
            try:
                return _text((x.detach() if hasattr(x, "detach") else x).tolist())
            except RuntimeError:  # as in `_equal`
                pass
        return f"<{x.dtype} {list(x.shape)}>"
    if isinstance(x, (list, tuple)):
        return "[" + ", ".join(map(_text, x)) + "]"
    if isinstance(x, float) and not math.isfinite(x):
        return f"float('{x}')"
    return repr(x)


def frozen(x: Any) -> Any:
    """A list or an array as a tuple, so that later changes of the original have no effect."""
    if isinstance(x, int):  # comes first: isinstance is the only question that a variable of torch.compile allows
        return x
    if isinstance(x, (list, tuple)):
        return tuple(map(frozen, x))
    if is_array(x) and hasattr(x, "tolist"):
        return frozen(x.tolist())
    return x


class _Signature:
    """The signature that help() shows, made on demand."""

    def __get__(self, _: Any, cls: Any) -> Any:
        import inspect

        empty, kind = inspect.Parameter.empty, inspect.Parameter.POSITIONAL_OR_KEYWORD
        return inspect.Signature(
            [
                inspect.Parameter(
                    field.name,
                    kind,
                    default=empty if field.default is dataclasses.MISSING else field.default,
                    annotation=field.type,
                )
                for field in (dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else ())
            ]
        )


@dataclass_transform(frozen_default=True, eq_default=False)
class Value:
    """The base class of scores, mods, masks and normalisers.

    `repr` writes arrays as lists, which can be evaluated again. Arrays of more than 1000 elements are written as
    their dtype and shape, which cannot.
    """

    _names: ClassVar[tuple[str, ...]] = ()
    _defaults: ClassVar[dict[str, Any]] = {}
    __signature__ = _Signature()

    # Not a dataclass: compiling the methods of forty dataclasses would take most of the package's import time.
    def __init_subclass__(cls, **kwargs: Any):
        super().__init_subclass__(**kwargs)
        dataclasses.dataclass(init=False, eq=False, repr=False)(cls)
        fields = dataclasses.fields(cls)  # type: ignore[arg-type]
        cls._names = tuple(field.name for field in fields)
        cls._defaults = {field.name: field.default for field in fields if field.default is not dataclasses.MISSING}

    if not TYPE_CHECKING:

        def __init__(self, *args, **kwargs):  # in plain code, because torch.compile traces it
            name, names, defaults = type(self).__name__, self._names, self._defaults
            if len(args) > len(names):
                most = "1 argument" if len(names) == 1 else f"{len(names)} arguments"
                raise TypeError(f"{name}() takes {most} but {len(args)} were given")
            given = dict(zip(names, args))
            for key in kwargs:
                if key in given:
                    raise TypeError(f"{name}() got multiple values for argument {key!r}")
                if key not in names:
                    raise TypeError(f"{name}() got an unexpected keyword argument {key!r}")
            given.update(kwargs)
            for key in names:
                if key not in given and key not in defaults:
                    raise TypeError(f"{name}() missing the required argument {key!r}")
                object.__setattr__(self, key, given[key] if key in given else defaults[key])
            self.__post_init__()

        def __setattr__(self, name, value):
            raise dataclasses.FrozenInstanceError(f"cannot assign to {name!r}: values of fovea do not change")

        def __delattr__(self, name):
            raise dataclasses.FrozenInstanceError(f"cannot delete {name!r}: values of fovea do not change")

    def __post_init__(self) -> None:
        pass

    def _fields(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}  # type: ignore[arg-type]

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        theirs = other._fields()
        return all(_equal(value, theirs[name]) for name, value in self._fields().items())

    def __hash__(self) -> int:
        # Without fields that may be arrays, whose elements an optimiser changes.
        fields = dataclasses.fields(self)  # type: ignore[arg-type]
        return hash((type(self), *(_hashable(getattr(self, f.name)) for f in fields if f.type != "Any")))

    def __repr__(self) -> str:
        parts = []
        in_order = True  # all earlier fields were written
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            default = field.default if field.default is not dataclasses.MISSING else ...
            if default is not ... and _equal(value, default):
                in_order = False
                continue
            parts.append(_text(value) if in_order else f"{field.name}={_text(value)}")
        return f"fovea.{type(self).__name__}({', '.join(parts)})"


def _hashable(x: Any) -> Any:
    """A hashable value that is equal for `_equal` arguments."""
    if isinstance(x, Value):
        return x  # hashing it here as well would double the work at each level of a mask
    if isinstance(x, (list, tuple)):
        return tuple(map(_hashable, x))
    if is_array(x):
        return _hashable(x.tolist()) if type(x).__module__ == "numpy" else None
    try:
        hash(x)
    except TypeError:
        return None
    return x


def shown(x: Any) -> str:
    """A text of x for an error message, however long x is and even if its repr fails."""
    try:
        text = f"{x.dtype} {list(x.shape)}" if is_array(x) and x.shape != () and not isinstance(x, type) else repr(x)
    except Exception:
        text = f"a {type(x).__name__}"
    return text if len(text) <= 80 else text[:77] + "..."


def _refuse(name: str, expected: str, x: Any) -> "InvalidArgument":
    function, _, argument = name.rpartition(".")
    return InvalidArgument(function, argument, expected, shown(x))


def real(x: Any, name: str) -> float:
    """`name` is "function.argument"."""
    if isinstance(x, float):  # also a variable of torch.compile, which allows no other question
        return float(x)
    if is_array(x) and library_of(x).wants_gradient(x):  # which a number would lose silently
        raise _refuse(name, "a number, or a tensor that wants no gradient (detach it)", x)
    try:
        if isinstance(x, (bool, str, bytes)) or is_array(x) and len(x.shape):
            raise TypeError
        return float(x)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        raise _refuse(name, "a number", x) from None


def truth(x: Any, name: str) -> bool:
    """`name` is "function.argument"."""
    if not isinstance(x, (str, bytes)):  # "no" would be true
        try:
            return bool(x)
        except Exception:  # an array of several elements has no truth value
            pass
    raise _refuse(name, "True or False", x)


def number(x: Any, name: str) -> str:
    """A number as text of the grammar, which is parsed back to the same bits."""
    # The text of repr, by a call that torch.compile can trace for a variable.
    text = f"{real(x, name)}"
    return text[:-2] if text.endswith(".0") else text


def integer(x: Any, name: str, bits: int = 63) -> str:
    """A whole number with a sign and this many bits, as text."""
    try:
        if isinstance(x, bool):
            raise TypeError
        n = x.__index__()
    except (TypeError, AttributeError, RuntimeError):
        raise _refuse(name, "a whole number", x) from None
    if not -1 << bits <= n < 1 << bits:
        raise _refuse(name, f"a whole number in [-2^{bits}, 2^{bits})", x)
    return str(n)


def count(x: Any, name: str) -> str:
    """A whole number that the grammar can write: at least 0 and not the largest one, which means "all"."""
    text = integer(x, name)
    if not 0 <= int(text) < (1 << 63) - 1:
        raise _refuse(name, "a whole number in [0, 2^63 - 1)", x)
    return text


def integers(x: Any, name: str) -> tuple[int, ...]:
    """A sequence or array of whole numbers as a tuple."""
    try:
        if isinstance(x, (str, bytes)):
            raise TypeError
        elements = tuple(x.tolist() if hasattr(x, "tolist") else x)
    except TypeError:
        raise _refuse(name, "a sequence of whole numbers", x) from None
    # A number is not converted: in a graph it may be a symbol of one that is not known yet.
    return tuple(e if _is_short(e) else int(integer(e, name)) for e in elements)


def _is_short(x: Any) -> bool:
    return isinstance(x, int) and not isinstance(x, bool) and -1 << 63 <= x < 1 << 63
