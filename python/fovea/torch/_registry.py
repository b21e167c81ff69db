"""Operators of PyTorch outlive the modules that register them, and no name may be defined twice.

A program may remove `fovea` from sys.modules and import it again. The operators of the first import then stay, and so
do graphs that were compiled with them. The operators therefore look up their functions by name at each call.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any, Callable

import torch


def is_registered(operator: str) -> bool:
    """Whether an import of this package has defined fovea::<operator>."""
    return hasattr(torch.ops.fovea, operator)


def register_batched(operator: str, kernel: Callable[..., Any]) -> None:
    """Registers the function that the vmap inside torch.autograd calls for fovea::<operator>."""
    library = torch.library.Library("fovea", "FRAGMENT")
    library.impl(operator, kernel, "Batched")
    # Kept alive: it unregisters the kernel when it is garbage-collected, as this module may be.
    vars(torch.ops.fovea).setdefault("_libraries", []).append(library)


def as_it_now_is(function: Callable[..., Any]) -> Callable[..., Any]:
    """Calls the function of this name in the module that was imported last."""
    module, name = function.__module__, function.__name__

    def call(*args: Any, **kwargs: Any) -> Any:
        found = sys.modules.get(module) or importlib.import_module(module)
        return getattr(found, name)(*args, **kwargs)

    return call
