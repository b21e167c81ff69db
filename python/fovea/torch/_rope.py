"""`fovea.rotate` on tensors: an operator whose derivative is itself, turned back."""

from __future__ import annotations

from typing import Any, Optional, Sequence

import torch
from torch import Tensor

from .._arrays import Torch, described, dtype_name
from .._errors import InvalidArgument
from ..rope import _table


@torch.library.custom_op("fovea::rotate", mutates_args=())
def _rotate(
    x: Tensor,
    rope: str,
    table_positions: int,
    first: int,
    positions: Optional[Sequence[int]],
    backward: bool,
) -> Tensor:
    dtype = dtype_name(x, "x")
    out = torch.empty(x.shape, dtype=x.dtype)
    table = _table(rope, table_positions, "f64" if dtype == "f64" else "f32")
    table.rotate(Torch.operand(x), first, None if positions is None else list(positions), out, backward)
    return out


@_rotate.register_fake
def _(x: Tensor, *rest: Any) -> Tensor:
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.arguments = inputs[1:]


def _backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
    *how, turned_back = ctx.arguments
    return _rotate(gradient, *how, not turned_back), None, None, None, None, None


_rotate.register_autograd(_backward, setup_context=_setup)


def rotate(x: Tensor, rope: str, table_positions: int, first: int, positions: Optional[Sequence[int]]) -> Tensor:
    """See `fovea.rotate`."""
    if x.device.type != "cpu":
        raise InvalidArgument("rotate", "x", "a tensor on the CPU", f"{described(x)} on {x.device}")
    return _rotate(x, rope, table_positions, first, positions, False)
