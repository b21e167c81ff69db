"""What can go wrong, as a type."""

from __future__ import annotations

from typing import Any

__all__ = ["InvalidArgument"]

_PYTHON_NAMES = {
    "attend": "attention",
    "attend_backward": "gradients",
    "make_plan": "attention",
    "RopeTable": "rotate",
    "rope_forward": "rotate",
    "rope_backward": "rotate",
    "parse_rope": "Rope",
    "merge_attention": "merge",
}

_ARGUMENTS = {
    "sink": "normalizer.sink",
    "transitions": "normalizer.transitions",
    "dropout.rate": "dropout",
    "output": "out",
    "input": "x",
    "cosines": "cos",
    "sines": "sin",
}


def _argument(name: str) -> str:
    for prefix, replacement in (
        ("parameters.", "score."),
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


class InvalidArgument(ValueError):
    """An argument that a function cannot accept.

    Attributes:
        function: the function, as its caller spells it ("attention").
        argument: the argument or part of one ("key", "mods[0].slope").
        expected: what it had to be.
        got: what came.
    """

    def __init__(self, function: str, argument: str, expected: str, got: str):
        self.function = _PYTHON_NAMES.get(function, function)
        self.argument = _argument(argument)
        self.expected = expected
        self.got = got
        super().__init__(f"{self.function}: {self.argument}: expected {expected}, got {got}")

    def __reduce__(self) -> Any:
        return type(self), (self.function, self.argument, self.expected, self.got)
