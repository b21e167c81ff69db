"""`fovea.rotate` on tensors: an operator whose derivative is the inverse rotation."""

from __future__ import annotations

from typing import Any, Optional, Sequence

import torch
from torch import Tensor

from .. import _core
from .._arrays import described, dtype_name
from .._errors import InvalidArgument
from ..rope import check_shape, positions_of, table
from ._batches import legacy_rule, vmap_rule
from ._kinds import is_transformed
from ._registry import as_it_now_is, is_registered, register_batched
from ._tensors import TENSORS

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
    out = torch.empty(x.shape, dtype=x.dtype)
    listed = None if positions is None else list(positions)
    table(rope, table_positions, dtype_name(x, "x")).rotate(TENSORS.operand(x), first, listed, out, backward)
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
    """The operator for transforms of torch.func, which PyTorch's registered gradients do not support."""

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


_ROTATE_BY_TABLES = (
    "(Tensor x, Tensor cos, Tensor sin, Tensor? positions, SymInt first, bool interleaved, bool backward) -> Tensor"
)


def _rotate_by_tables(
    x: Tensor, cos: Tensor, sin: Tensor, positions: Optional[Tensor], first: int, interleaved: bool, backward: bool
) -> Tensor:
    out = torch.empty(x.shape, dtype=x.dtype)
    listed = None if positions is None else positions.reshape(-1).tolist()
    cos, sin = TENSORS.operand(cos), TENSORS.operand(sin)
    _core.rotate_by_tables(cos, sin, interleaved, TENSORS.operand(x), first, listed, out, backward)
    return out


def _setup_tables(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    _, cos, sin, positions, *ctx.how = inputs
    ctx.save_for_backward(cos, sin, positions)


def _backward_by_tables(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
    first, interleaved, turned_back = ctx.how
    return (
        torch.ops.fovea.rotate_by_tables(gradient, *ctx.saved_tensors, first, interleaved, not turned_back),
        *(None,) * 6,
    )


def _register_tables() -> None:
    define = torch.library.custom_op("fovea::rotate_by_tables", mutates_args=(), schema=_ROTATE_BY_TABLES)
    operator = define(as_it_now_is(_rotate_by_tables))
    operator.register_fake(as_it_now_is(_fake))
    operator.register_autograd(as_it_now_is(_backward_by_tables), setup_context=as_it_now_is(_setup_tables))


if not is_registered("rotate_by_tables"):
    _register_tables()


def rotate(x: Tensor, rope: str, table_positions: int, first: int, positions: Optional[Sequence[int]]) -> Tensor:
    """See `fovea.rotate`."""
    _on_cpu("x", x)
    call = _Rotate.apply if is_transformed() else torch.ops.fovea.rotate
    rotated: Tensor = call(x, rope, table_positions, first, positions, False)
    return rotated


def rotate_by_tables(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool, positions: Any) -> Tensor:
    """See `fovea.rotate`. Positions in a tensor stay a tensor: a graph does not know their values."""
    for name, tensor in (("x", x), ("cos", cos), ("sin", sin)):
        _on_cpu(name, tensor)
    for name, tensor in (("cos", cos), ("sin", sin)):
        if TENSORS.wants_gradient(tensor):
            raise InvalidArgument(
                "rotate", name, "a table that wants no gradient (detach it)", "a tensor that requires grad"
            )
    first, listed = 0, None
    if isinstance(positions, Tensor) and positions.ndim:
        check_shape(tuple(positions.shape), x.shape[0], x.shape[2])
        if positions.is_floating_point() or positions.is_complex() or positions.dtype == torch.bool:
            raise InvalidArgument("rotate", "positions", "whole numbers", described(positions))
        listed = positions
    else:
        first, numbers = positions_of(positions, x.shape[0], x.shape[2])
        listed = None if numbers is None else torch.tensor(numbers, dtype=torch.int64)
    rotated: Tensor = torch.ops.fovea.rotate_by_tables(x, cos, sin, listed, first, interleaved, False)
    return rotated


def _on_cpu(name: str, x: Tensor) -> None:
    if x.device.type != "cpu":
        raise InvalidArgument("rotate", name, "a tensor on the CPU", f"{described(x)} on {x.device}")
