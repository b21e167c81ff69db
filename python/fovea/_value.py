"""Values of the algebra: immutable, compared by what they hold, printed as they are written."""

from __future__ import annotations

import dataclasses
from typing import Any

_MOST_ELEMENTS = 1000


def is_array(x: Any) -> bool:
    return hasattr(x, "shape") and hasattr(x, "dtype")


def _equal(a: Any, b: Any) -> bool:
    if a is b:
        return True
    if is_array(a) or is_array(b):
        a, b = (x.tolist() if hasattr(x, "tolist") else x for x in (a, b))
        return a == b
    return type(a) is type(b) and a == b


def _text(x: Any) -> str:
    if is_array(x):
        size = 1
        for n in x.shape:
            size *= int(n)
        if size <= _MOST_ELEMENTS and hasattr(x, "tolist"):
            return repr(x.detach().tolist() if hasattr(x, "detach") else x.tolist())
        return f"<{x.dtype} {list(x.shape)}>"
    if isinstance(x, tuple) and len(x) != 1:
        return "[" + ", ".join(_text(e) for e in x) + "]"
    return repr(x)


class Value:
    """What scores, mods, masks and normalisers have in common.

    Arrays in `repr` are written as lists, which reads back; those of more than 1000 elements as their dtype
    and shape, which does not.
    """

    def __init_subclass__(cls, **kwargs: Any):
        super().__init_subclass__(**kwargs)
        dataclasses.dataclass(frozen=True, eq=False, repr=False)(cls)

    def _fields(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}  # type: ignore[arg-type]

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        theirs = other._fields()  # type: ignore[attr-defined]
        return all(_equal(value, theirs[name]) for name, value in self._fields().items())

    def __hash__(self) -> int:
        return hash((type(self), *(None if is_array(x) else _hashable(x) for x in self._fields().values())))

    def __repr__(self) -> str:
        parts = []
        required = True
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            default = field.default if field.default is not dataclasses.MISSING else ...
            if default is not ... and _equal(value, default):
                required = False
                continue
            required = required and default is ...
            parts.append(_text(value) if required else f"{field.name}={_text(value)}")
        return f"fovea.{type(self).__name__}({', '.join(parts)})"


def _hashable(x: Any) -> Any:
    if isinstance(x, list):
        return tuple(_hashable(e) for e in x)
    try:
        hash(x)
    except TypeError:
        return None
    return x


def number(x: Any, name: str) -> str:
    """A number in the grammar's text, which reads back to the bit."""
    from ._errors import InvalidArgument

    if isinstance(x, bool) or not hasattr(x, "__float__") or is_array(x) and getattr(x, "ndim", 0):
        raise InvalidArgument(name.split(".")[0], name.split(".")[-1], "a number", repr(x))
    text = f"{float(x)}"  # repr, but torch.compile can follow it for a number that it made a variable
    return text[:-2] if text.endswith(".0") else text


def integer(x: Any, name: str) -> str:
    from ._errors import InvalidArgument

    try:
        if isinstance(x, bool):
            raise TypeError
        return str(x.__index__())
    except (TypeError, AttributeError):
        raise InvalidArgument(name.split(".")[0], name.split(".")[-1], "a whole number", repr(x)) from None


def integers(x: Any, name: str) -> tuple[int, ...]:
    """A sequence or array of whole numbers as a tuple."""
    from ._errors import InvalidArgument

    try:
        return tuple(int(integer(e, name)) for e in (x.tolist() if hasattr(x, "tolist") else x))
    except TypeError:
        raise InvalidArgument(
            name.split(".")[0], name.split(".")[-1], "a sequence of whole numbers", repr(x)
        ) from None
