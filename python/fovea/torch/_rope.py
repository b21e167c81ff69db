"""`fovea.rotate` on tensors: an operator whose derivative is itself, turned back."""

from __future__ import annotations

from typing import Any, Optional, Sequence

import torch
from torch import Tensor

from .._arrays import Torch, described, dtype_name
from .._errors import InvalidArgument
from ..rope import _table
from ._batches import legacy_rule, vmap_rule
from ._kinds import is_transformed
from ._registry import as_it_now_is, is_registered, register_batched

_ROTATE = (
    "(Tensor x, str rope, SymInt table_positions, SymInt first, SymInt[]? positions, bool backward) -> Tensor"
)

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


def _fake(x: Tensor, *rest: Any) -> Tensor:
    return torch.empty(x.shape, dtype=x.dtype, device=x.device)


def _setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.arguments = inputs[1:]


def _backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
    *how, turned_back = ctx.arguments
    return torch.ops.fovea.rotate(gradient, *how, not turned_back), None, None, None, None, None


def _register() -> None:
    define = torch.library.custom_op("fovea::rotate", mutates_args=(), schema=_ROTATE)
    operator = define(as_it_now_is(_rotate))
    operator.register_fake(as_it_now_is(_fake))
    operator.register_autograd(as_it_now_is(_backward), setup_context=as_it_now_is(_setup))
    operator.register_vmap(vmap_rule(torch.ops.fovea.rotate))
    register_batched("rotate", legacy_rule(torch.ops.fovea.rotate))


if not is_registered("rotate"):
    _register()


class _Rotate(torch.autograd.Function):
    """The operator for transforms of torch.func, which PyTorch's registered gradients do not follow."""

    @staticmethod
    def forward(x: Tensor, *how: Any) -> Tensor:
        rotated: Tensor = torch.ops.fovea.rotate(x, *how)
        return rotated

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        ctx.arguments = inputs[1:]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
        *how, turned_back = ctx.arguments
        return _Rotate.apply(gradient, *how, not turned_back), None, None, None, None, None

    @staticmethod
    def vmap(info: Any, in_dims: Any, *arguments: Any) -> Any:
        return vmap_rule(_Rotate.apply)(info, in_dims, *arguments)


def rotate(x: Tensor, rope: str, table_positions: int, first: int, positions: Optional[Sequence[int]]) -> Tensor:
    """See `fovea.rotate`."""
    if x.device.type != "cpu":
        raise InvalidArgument("rotate", "x", "a tensor on the CPU", f"{described(x)} on {x.device}")
    call = _Rotate.apply if is_transformed() else torch.ops.fovea.rotate
    rotated: Tensor = call(x, rope, table_positions, first, positions, False)
    return rotated
