"""Functions that a mask holds, on their way to another process."""

from __future__ import annotations

import pickle
import sys
import threading
from typing import Any

from ._errors import InvalidArgument
from ._value import shown

_probe = threading.local()


def check_function(function: Any, owner: str, argument: str) -> None:
    """Throws InvalidArgument, which names the mask, for a function that the pickler at work cannot write. Pickle's
    own error names neither the mask nor what would help."""
    if getattr(_probe, "running", False):
        return  # a method of an object that holds the mask leads back here
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
    """Is the pickler at work one with a way of its own for functions, as cloudpickle and dill are? Such picklers are
    classes of Python, whose `dump` is among the callers."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        pickler = frame.f_locals.get("self")
        plain = isinstance(pickler, pickle._Pickler)  # of Python's own, or dill's, which derives from it
        if plain or isinstance(pickler, pickle.Pickler) and hasattr(pickler, "reducer_override"):
            return type(pickler) is not pickle._Pickler
        frame = frame.f_back
    return False
