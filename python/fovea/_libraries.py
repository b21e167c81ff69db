"""The libraries whose arrays the package serves. To add one, write a module with a LIBRARY and add a row."""

from __future__ import annotations

from typing import Callable

from ._arrays import Library


def _torch() -> Library:
    from .torch._library import LIBRARY

    return LIBRARY


# From the package of an array's class to the import of its library. The import runs at the first such array, so
# that a program imports nothing that it does not use. It is an import statement because torch.compile follows those
# and nothing else.
OWNERS: dict[str, Callable[[], Library]] = {"torch": _torch}

__all__ = ["OWNERS"]
