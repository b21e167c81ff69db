"""Masks in the key of a cache, which must not keep their functions alive."""

from __future__ import annotations

import weakref
from typing import Any, Callable

from ._mask import Mask, replaced
from ._predicate import Predicate


class WeakPredicate(Mask):
    """A predicate by a reference that is equal for equal functions."""

    function: object


def weakly(mask: Mask, gone: Callable[[Any], None]) -> Mask:
    """The mask with a `WeakPredicate` in the place of each predicate; gone(reference) is called when a function
    goes."""

    def of(part: Mask) -> Mask:
        return WeakPredicate(_reference(part.visible, gone)) if isinstance(part, Predicate) else part

    return replaced(mask, of)


def watches(mask: Mask, reference: Any) -> bool:
    """Is the reference one of the mask's functions?"""
    if isinstance(mask, WeakPredicate):
        return mask.function is reference
    return any(watches(part, reference) for part in mask._parts())


def _reference(function: Any, gone: Callable[[Any], None]) -> Any:
    try:
        if hasattr(function, "__self__") and hasattr(function, "__func__"):
            return weakref.WeakMethod(function, gone)  # each look at a method makes a new one
        return weakref.ref(function, gone)
    except TypeError:  # of a type that cannot be watched, or no function at all: kept
        return function
