"""Finds the autograd functions (`torch.autograd.Function`) whose forward or backward is running on this thread.

PyTorch has no list of them. Their frames are on the call stack and are recognised by their code objects. Every
subclass of Function has its own class for its calls, and PyTorch makes all of these direct subclasses of
BackwardCFunction.
"""

from __future__ import annotations

import sys
import weakref
from types import CodeType, FrameType
from typing import Any, Iterator, NamedTuple, Optional

import torch
from torch.autograd.function import BackwardCFunction
from torch.utils.checkpoint import CheckpointFunction

# The methods that PyTorch's engine calls; the second is newer than PyTorch 2.6.
ENGINE_CALLS = tuple(name for name in ("apply", "apply_boxed") if hasattr(BackwardCFunction, name))
# Ids of code, as below.
_BACKWARD = frozenset(id(getattr(BackwardCFunction, name).__code__) for name in ENGINE_CALLS)


class Forward(NamedTuple):
    """A running forward."""

    # Identifies the call if nothing else does.
    frame: FrameType
    # The call, which later becomes the node of the graph. None: PyTorch does not expose it, because the class has
    # `setup_context`.
    call: Any
    # The classes that have this forward.
    classes: "tuple[Any, ...]"


class _Forwards:
    """The forwards of all subclasses, by the id of their code: comparing code itself compares all that is in it."""

    def __init__(self) -> None:
        self._count = 0
        self._last: Any = lambda: None
        self._codes: list[CodeType] = []  # keeps the ids alive
        self.classes: dict[int, list[Any]] = {}

    def now(self) -> "dict[int, list[Any]]":
        known = BackwardCFunction.__subclasses__()
        if len(known) != self._count or known[-1] is not self._last():
            self._read(known)
        return self.classes

    def _read(self, known: Any) -> None:
        codes: list[CodeType] = []
        classes: dict[int, list[Any]] = {}
        for kept in known:
            cls = getattr(kept, "_forward_cls", None)
            if cls is None or _belongs_to_libraries(cls):
                continue
            for code in _codes(cls.forward):
                codes.append(code)
                classes.setdefault(id(code), []).append(weakref.ref(cls))
        self._codes, self.classes = codes, classes
        self._count, self._last = len(known), weakref.ref(known[-1])


def _belongs_to_libraries(cls: Any) -> bool:
    """Whether the function belongs to PyTorch or Fovea. These call no user's attention, except for the checkpoint."""
    module = str(getattr(cls, "__module__", ""))
    return cls is not CheckpointFunction and module.split(".")[0] in ("torch", "fovea")


def _codes(function: Any) -> Iterator[CodeType]:
    """Of a function and of those that it wraps."""
    for _ in range(20):  # wrappers may be nested; this also ends in a cycle
        code = getattr(function, "__code__", None)
        if isinstance(code, CodeType):
            yield code
        inner = (getattr(function, name, None) for name in ("__wrapped__", "__func__", "func"))
        function = next((x for x in inner if x is not None), None)
        if function is None:
            return


_forwards = _Forwards()


def forwards() -> list[Forward]:
    """The running forwards, innermost first. A forward with wrappers may occur more than once."""
    known = _forwards.now()
    found = []
    frame: Optional[FrameType] = sys._getframe(1)
    while frame is not None:
        classes = known.get(id(frame.f_code))
        if classes is not None:
            alive = tuple(cls for cls in (reference() for reference in classes) if cls is not None)
            found.append(Forward(frame, _call_of(frame), alive))
        frame = frame.f_back
    return found


def _call_of(frame: FrameType) -> Any:
    """The first argument of a frame, if it is a call of a Function."""
    code, local = frame.f_code, frame.f_locals
    if code.co_argcount:
        first = local.get(code.co_varnames[0])
    else:  # *args is stored after the keyword arguments
        rest = local.get(code.co_varnames[code.co_kwonlyargcount]) if code.co_flags & 0x04 else None
        first = rest[0] if isinstance(rest, tuple) and rest else None
    return first if isinstance(first, BackwardCFunction) else None


def backward_in(frame: FrameType) -> Any:
    """The call whose backward this frame of PyTorch's runs; None: the frame is something else."""
    return frame.f_locals.get("self") if id(frame.f_code) in _BACKWARD else None


def has_setup_context(cls: Any) -> bool:
    return cls.setup_context is not torch.autograd.Function.setup_context


def next_number() -> int:
    """The number that the next node of this thread's graphs will get. Numbers increase."""
    return int(torch._C._autograd._get_sequence_nr())  # type: ignore[attr-defined, unused-ignore]


def number_of(call: Any) -> int:
    return int(call._sequence_nr())


__all__ = [
    "ENGINE_CALLS",
    "Forward",
    "backward_in",
    "forwards",
    "has_setup_context",
    "next_number",
    "number_of",
]
