"""Checks of arguments that functions with the arguments of other libraries share."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .._arrays import described
from .._errors import InvalidArgument
from .._value import shown


def check_shape(function: str, argument: str, x: Any, what: str, *shapes: tuple[int, ...]) -> None:
    """Throws unless x is None or a tensor of one of these shapes. PyTorch would broadcast other shapes, and so change
    results silently.

    Args:
        what: the names of the axes, for the error.
    """
    if x is None or (isinstance(x, Tensor) and tuple(x.shape) in shapes):
        return
    sizes = " or ".join(str([int(n) for n in shape]) for shape in shapes)
    raise InvalidArgument(function, argument, f"a tensor of {what}, {sizes}", described(x))


def starts_tensor(function: str, starts: Any, argument: str = "cu_seqlens") -> Tensor:
    """`starts` as a tensor of one axis. Its numbers are left to the engine: in a graph they are not known yet."""
    try:
        found = torch.as_tensor(starts)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        found = None
    if found is None or found.dim() != 1 or not _is_whole(found.dtype):
        raise InvalidArgument(function, argument, "whole numbers in one axis", shown(starts))
    return found


def _is_whole(dtype: torch.dtype) -> bool:
    return not (dtype.is_floating_point or dtype.is_complex or dtype == torch.bool)


__all__ = ["check_shape", "starts_tensor"]
