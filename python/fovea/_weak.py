"""Masks as keys of a cache, without keeping their functions alive."""

from __future__ import annotations

import weakref
from typing import Any, Callable

from ._mask import Mask, replaced
from ._predicate import Predicate


class WeakPredicate(Mask):
    """A predicate with a weak reference to its function; references to equal functions are equal."""

    function: object


def weakly(mask: Mask, gone: Callable[[Any], None]) -> Mask:
    """The mask with each predicate replaced by a `WeakPredicate`. gone(reference) is called when a function is
    deleted."""

    def of(part: Mask) -> Mask:
        return WeakPredicate(_reference(part.visible, gone)) if isinstance(part, Predicate) else part

    return replaced(mask, of)


def watches(mask: Mask, reference: Any) -> bool:
    """Whether the reference is to one of the mask's functions."""
    if isinstance(mask, WeakPredicate):
        return mask.function is reference
    return any(watches(part, reference) for part in mask._parts())


def _reference(function: Any, gone: Callable[[Any], None]) -> Any:
    try:
        if hasattr(function, "__self__") and hasattr(function, "__func__"):
            return weakref.WeakMethod(function, gone)  # each access to a method makes a new object
        return weakref.ref(function, gone)
    except TypeError:  # a type without weak references, or not a function: kept alive
        return function
