"""Operators of PyTorch outlive the modules that register them, and no name may be defined twice.

A program may remove `fovea` from sys.modules and import it again. The operators of the first import then stay, and so
do graphs that were compiled with them. The operators therefore look up their functions by name at each call.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any, Callable

import torch

from ._batches import legacy_rule, vmap_rule


def is_registered(operator: str) -> bool:
    """Whether an import of this package has defined fovea::<operator>."""
    return hasattr(torch.ops.fovea, operator)


def register_batched(operator: str, kernel: Callable[..., Any]) -> None:
    """Registers the function that the vmap inside torch.autograd calls for fovea::<operator>."""
    library = torch.library.Library("fovea", "FRAGMENT")
    library.impl(operator, kernel, "Batched")
    # Kept alive: it unregisters the kernel when it is garbage-collected, as this module may be.
    vars(torch.ops.fovea).setdefault("_libraries", []).append(library)


def register(
    operator: str,
    schema: str,
    kernel: Callable[..., Any],
    fake: Callable[..., Any],
    backward: Callable[..., Any],
    setup_context: Callable[..., Any],
) -> None:
    """Defines fovea::<operator> with its gradient and its rules for batches. The functions are of a module's top."""
    own = f"fovea::{operator}"
    # Fake outputs need strides, which depend on those of the inputs.
    torch.library.define(own, schema, tags=(torch.Tag.needs_exact_strides,))
    torch.library.impl(own, "CPU", as_it_now_is(kernel))
    torch.library.register_fake(own, as_it_now_is(fake))
    torch.library.register_autograd(own, as_it_now_is(backward), setup_context=as_it_now_is(setup_context))
    defined = getattr(torch.ops.fovea, operator)
    torch.library.register_vmap(own, vmap_rule(defined))
    register_batched(operator, legacy_rule(defined))


def save_nothing(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    """For an operator whose gradient is refused."""


def as_it_now_is(function: Callable[..., Any]) -> Callable[..., Any]:
    """Calls the function of this name in the module that was imported last."""
    module, name = function.__module__, function.__name__

    def call(*args: Any, **kwargs: Any) -> Any:
        found = sys.modules.get(module) or importlib.import_module(module)
        return getattr(found, name)(*args, **kwargs)

    return call
