"""The package's exception types."""

from __future__ import annotations

import functools
import re
from typing import Any, Callable, TypeVar

__all__ = ["CacheFull", "FileError", "InvalidArgument"]

_PYTHON_NAMES = {
    "attend": "attention",
    "attend_backward": "gradients",
    "make_plan": "attention",
    "RopeTable": "rotate",
    "rope_forward": "rotate",
    "rope_backward": "rotate",
    "parse_rope": "Rope",
    "merge_attention": "merge",
    "recur": "recurrence",
    "recur_backward": "recurrence_gradients",
    "make_recurrence_plan": "recurrence",
    "selective_scan_backward": "selective_scan_gradients",
    "causal_conv_backward": "causal_conv_gradients",
}
_RECURRENCES = frozenset({"recur", "recur_backward", "make_recurrence_plan"})

_ARGUMENTS = {
    "dropout.rate": "dropout",
    "output": "out",
    "input": "x",
    "cosines": "cos",
    "sines": "sin",
}

# The arrays of a recurrence, by the part of the spec that has them.
_PARTS = {
    "log_decay": "decay.log_decay",
    "beta": "write.beta",
    "erase": "write.erase",
    "a": "write.a",
    "b": "write.b",
    "bonus": "read.bonus",
    "self_weight": "read.self_weight",
}


def _argument(name: str) -> str:
    for prefix, replacement in (
        ("outputs.", ""),
        ("inputs.", ""),
        ("loss.", ""),
        ("spec.", ""),
        ("shape.", ""),
        ("options.", ""),
    ):
        if name.startswith(prefix):
            name = replacement + name[len(prefix) :]
            break
    return _ARGUMENTS.get(name, name)


_ENUMERATOR = re.compile(r"CacheValues::(\w+)")  # a string here

# All texts that this package writes itself are shorter than these limits, as in src/core/error.cpp. A longer text
# contains a caller's value.
_LONGEST_VALUE, _LONGEST_EXPECTED, _SHOWN = 400, 2000, 60


def excerpt(text: str, most: int = _SHOWN) -> str:
    """`text`; if it has more than `most` characters, its first 60 and its length."""
    return text if len(text) <= most else f"{text[:_SHOWN]}… ({len(text):,} characters)"


class InvalidArgument(ValueError):
    """An argument that a function cannot accept.

    Attributes:
        function: the name of the function that was called ("attention").
        argument: the argument, or a part of it ("key", "mods[0].slope").
        expected: what the argument must be.
        got: what was given, in full; the message shortens a long value.
    """

    def __init__(self, function: str, argument: str, expected: str, got: str):
        self.function = _PYTHON_NAMES.get(function, function).replace("KvCache::KvCache", "KvCache").replace("::", ".")
        self.argument = _PARTS.get(argument, _argument(argument)) if function in _RECURRENCES else _argument(argument)
        self.expected = expected = _ENUMERATOR.sub(r'"\1"', expected)
        self.got = got
        super().__init__(
            f"{self.function}: {excerpt(self.argument, _LONGEST_VALUE)}: "
            f"expected {excerpt(expected, _LONGEST_EXPECTED)}, got {excerpt(got, _LONGEST_VALUE)}"
        )

    def __reduce__(self) -> Any:
        return type(self), (self.function, self.argument, self.expected, self.got)


class CacheFull(RuntimeError):
    """A cache has no room within its limit of bytes. Committed rows are as they were.

    Attributes:
        needed, used, limit: bytes.
    """

    def __init__(self, message: str, needed: int, used: int, limit: int):
        super().__init__(message)
        self.needed, self.used, self.limit = needed, used, limit

    def __reduce__(self) -> Any:
        return type(self), (str(self), self.needed, self.used, self.limit)


class FileError(RuntimeError):
    """A file that cannot be read or written, or whose bytes do not follow its format.

    Attributes:
        file: its path.
        offset: the byte at which the reader stopped; -1 if none.
        reason: what was expected and what was found.
    """

    def __init__(self, message: str, file: str, offset: int, reason: str):
        super().__init__(message)
        self.file, self.offset, self.reason = file, offset, reason

    def __reduce__(self) -> Any:
        return type(self), (str(self), self.file, self.offset, self.reason)


_Function = TypeVar("_Function", bound=Callable[..., Any])


def named(name: str, shared: str = "attention") -> Callable[[_Function], _Function]:
    """A decorator: errors in code that a function shares with `attention`, or with another function, name the function
    that was called."""

    def wrap(function: _Function) -> _Function:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                return function(*args, **kwargs)
            except InvalidArgument as error:
                if error.function != shared:
                    raise
                raise InvalidArgument(name, error.argument, error.expected, error.got) from None

        return call  # type: ignore[return-value]

    return wrap
