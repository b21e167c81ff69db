"""Pickling of the functions that masks hold."""

from __future__ import annotations

import pickle
import sys
import threading
from typing import Any

from ._errors import InvalidArgument
from ._value import shown

_probe = threading.local()


def check_function(function: Any, owner: str, argument: str) -> None:
    """Throws InvalidArgument with the mask's name for a function that the running pickler cannot write. Pickle's own
    error names neither the mask nor a remedy."""
    if getattr(_probe, "running", False):
        return  # a method of an object that holds the mask would recurse
    _probe.running = True
    try:
        pickle.dumps(function)
    except Exception as error:  # PicklingError, AttributeError, TypeError or what the function's own __reduce__ raises
        if not _writes_functions():
            raise InvalidArgument(
                owner,
                argument,
                "a function that pickles: one that `def` makes at the top of a module",
                f"{shown(function)} ({error})",
            ) from None
    finally:
        _probe.running = False


def _writes_functions() -> bool:
    """Whether the running pickler can write any function, as cloudpickle and dill can. Such picklers are Python
    classes, whose `dump` is among the callers."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        pickler = frame.f_locals.get("self")
        plain = isinstance(pickler, pickle._Pickler)  # of Python's own, or dill's, which derives from it
        if plain or isinstance(pickler, pickle.Pickler) and hasattr(pickler, "reducer_override"):
            return type(pickler) is not pickle._Pickler
        frame = frame.f_back
    return False
