"""The base class of masks, and masks made of masks: `a & b`, `a | b`, `~a`."""

from __future__ import annotations

import dataclasses
from typing import Any, Callable, Sequence

from . import _core
from ._arrays import Library
from ._errors import InvalidArgument
from ._value import Value, shown

__all__ = ["And", "Mask", "Not", "Or", "Sizes", "any_part", "broadcasts", "replaced"]


@dataclasses.dataclass(frozen=True)
class Sizes:
    """The sizes of a call, from which a mask is made."""

    batch: int
    heads: int
    query_len: int
    key_len: int
    # One number for all batch entries, or a tuple with one for each.
    query_offset: Any
    # The query's library: functions are called with its arrays.
    library: Library
    # Of a packed batch: how many queries each entry has. None: query_len.
    query_rows: "tuple[int, ...] | None" = None

    def rows_of(self, entry: int) -> int:
        return self.query_len if self.query_rows is None else self.query_rows[entry]


class Mask(Value):
    """The base class of masks. `mask=` also takes arrays and functions."""

    def _engine(self, sizes: Sizes) -> "_core.Mask":
        """The engine's mask for calls of these sizes."""
        try:
            return _core.Mask(self._text())
        except InvalidArgument as error:
            raise self._said(error) from None

    def _said(self, error: InvalidArgument) -> InvalidArgument:
        """Translates an error of the text's parser into an error about the caller's value."""
        own = type(self).__name__
        if error.function != "parse_mask":
            return error
        what, _, expected = error.expected.partition(" with ")
        argument, _, got = error.got.rpartition(" ")
        argument, _, remark = argument.partition(", ")
        if not expected or not argument:
            return InvalidArgument(own, ", ".join(self._fields()), error.expected, error.got)
        return InvalidArgument(own, argument, f"{expected} ({remark})" if remark else expected, got)

    def _text(self) -> str:
        raise NotImplementedError

    def _parts(self) -> "tuple[Mask, ...]":
        return ()

    # The precedence of & (2), | (1) and ~ (3); a name has the highest.
    _strength = 4

    def __and__(self, other: "Mask") -> "Mask":
        return And(self, other) if isinstance(other, Mask) else NotImplemented

    def __or__(self, other: "Mask") -> "Mask":
        return Or(self, other) if isinstance(other, Mask) else NotImplemented

    def __invert__(self) -> "Mask":
        return Not(self)


# Limits for code that walks a mask: hashing, comparing, printing and the engine. `m & m` twice has four parts.
_MOST_LEVELS, _MOST_PARTS = 100, 4096


def _count_parts(whole: Mask, *parts: Any) -> None:
    """Checks the operands of & and |, and stores the depth and size of the whole."""
    name = type(whole).__name__
    levels, size = 0, 1
    for mask in parts:
        if not isinstance(mask, Mask):
            raise InvalidArgument(name, "a", "a mask of fovea", shown(mask))
        levels = max(levels, mask.__dict__.get("_levels", 0) + 1)
        size += mask.__dict__.get("_size", 1)
    if levels > _MOST_LEVELS or size > _MOST_PARTS:
        raise InvalidArgument(
            name,
            "a",
            f"a mask of at most {_MOST_LEVELS} levels and {_MOST_PARTS} parts: an array or a predicate holds more",
            f"{levels} levels of {size} parts",
        )
    object.__setattr__(whole, "_levels", levels)
    object.__setattr__(whole, "_size", size)


def _in_parentheses(mask: Mask, strength: int) -> str:
    return repr(mask) if mask._strength >= strength else f"({mask!r})"


class And(Mask):
    """Visible in both: what `a & b` makes."""

    a: Mask
    b: Mask
    _strength = 2

    def __post_init__(self) -> None:
        _count_parts(self, self.a, self.b)

    def _engine(self, sizes: Sizes) -> "_core.Mask":
        return self.a._engine(sizes) & self.b._engine(sizes)

    def _parts(self) -> tuple[Mask, ...]:
        return self.a, self.b

    def __repr__(self) -> str:
        return f"{_in_parentheses(self.a, 2)} & {_in_parentheses(self.b, 3)}"


class Or(Mask):
    """Visible in either: what `a | b` makes."""

    a: Mask
    b: Mask
    _strength = 1

    def __post_init__(self) -> None:
        _count_parts(self, self.a, self.b)

    def _engine(self, sizes: Sizes) -> "_core.Mask":
        return self.a._engine(sizes) | self.b._engine(sizes)

    def _parts(self) -> tuple[Mask, ...]:
        return self.a, self.b

    def __repr__(self) -> str:
        return f"{_in_parentheses(self.a, 1)} | {_in_parentheses(self.b, 2)}"


class Not(Mask):
    """Visible where the mask hides: what `~a` makes."""

    a: Mask
    _strength = 3

    def __post_init__(self) -> None:
        _count_parts(self, self.a)

    def _engine(self, sizes: Sizes) -> "_core.Mask":
        return ~self.a._engine(sizes)

    def _parts(self) -> tuple[Mask, ...]:
        return (self.a,)

    def __repr__(self) -> str:
        return f"~{_in_parentheses(self.a, 3)}"


def broadcasts(shape: Sequence[int], full: Sequence[int]) -> bool:
    """Whether an array of this shape broadcasts to the other shape."""
    return all(a in (1, b) for a, b in zip(reversed(shape), reversed(full)))


def any_part(mask: Mask, kind: type) -> bool:
    """Whether the mask or a part of it is of this class."""
    return isinstance(mask, kind) or any(any_part(part, kind) for part in mask._parts())


def replaced(mask: Mask, by: Callable[[Mask], Mask]) -> Mask:
    """The mask, with each part that has no parts itself replaced by by(part)."""
    parts = mask._parts()
    return type(mask)(*(replaced(part, by) for part in parts)) if parts else by(mask)
