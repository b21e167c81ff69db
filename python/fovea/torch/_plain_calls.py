"""The shortest way of a call that has no arguments but plain tensors: `fovea.attention(q, k, v)`, causal or not, and
`scaled_dot_product_attention` alike.

The result is that of the longer way, `_op.attention`, bit for bit. The longer way costs some 40 µs a call before the
engine runs, because it splits and checks any spec with any argument.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple, Optional

import torch
from torch import Tensor
from torch.autograd import forward_ad

from .. import _core
from .._arrays import dtype_name
from .._engine import Request
from .._positions import Positions
from .._spec import Call, PlanKey, Shape, Structure, known_plan, plan_for
from ..masks import Causal, Everything
from ._batches import is_wrapped
from ._kinds import PLAIN
from ._op import Attention
from ._tensors import TENSORS


class Plain(NamedTuple):
    """A spec without arrays, for both ways."""

    calls: "_core.PlainCalls"
    call: Call
    request: Request


@functools.lru_cache(maxsize=64)
def plain(causal: bool, scale: Optional[float], query_offset: Optional[int], grouped: bool) -> Plain:
    """Scaled dot products and their softmax.

    Args:
        grouped: whether a key's head may serve several heads of the query.
    """
    structure = Structure(
        score="scaled-dot",
        scale=scale,
        mods=(),
        mask=Causal() if causal else Everything(),
        normalizer="softmax",
        weight_mods=(),
        dropout=0.0,
        precision="full",
        hidden=0,
    )

    def plan(sizes: tuple[int, ...], dtype: str) -> "_core.Plan":
        return known_plan(PlanKey(structure, Shape(*sizes, hidden=0), dtype))

    call = Call(structure, {}, (), None, TENSORS)
    return Plain(_core.PlainCalls(plan, TENSORS.like, grouped), call, Request(Positions(query_offset)))


def attend(spec: Plain, query: Any, key: Any, value: Any) -> Optional[Tensor]:
    """The output, or None: the longer way serves this call, or says what is wrong with it."""
    if not (_holds_values(query) and _holds_values(key) and _holds_values(value) and _is_eager()):
        return None
    if torch.is_grad_enabled() and (query.requires_grad or key.requires_grad or value.requires_grad):
        try:
            recorded: Tensor = _Recorded.apply(spec, None, query, key, value)
        except _NotServed:
            return None
        return recorded
    output: Optional[Tensor] = spec.calls.attend(query, key, value, spec.request.at.offset)
    return output


def _holds_values(x: Any) -> bool:
    """Whether the memory of x holds its values: that of other classes may hold anything, and a view may be negated."""
    return type(x) in PLAIN and not x.is_neg()


def _is_eager() -> bool:
    """Whether nothing sees or changes operations on plain tensors: no graph, mode, transform, dual number or cast."""
    return (
        torch._C._len_torch_dispatch_stack() == 0
        and torch._C._functorch.peek_interpreter_stack() is None
        and forward_ad._current_level < 0
        and torch._C._get_tracing_state() is None
        and not torch.is_autocast_enabled("cpu")
    )


class _NotServed(Exception):
    """Ends a recorded call whose arrays the engine does not serve here."""


class _Recorded(Attention):
    """`Attention` for these calls. A loss that the engine does not serve here runs as its base class does."""

    @staticmethod
    def forward(ctx: Any, spec: Plain, _: None, *tensors: Any) -> Any:
        query, key, value = tensors
        found = spec.calls.attend_recorded(query, key, value, spec.request.at.offset)
        if found is None:
            raise _NotServed
        ctx.spec = spec
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(query, key, value, *found)
        return found[0]

    @staticmethod
    def backward(ctx: Any, d_output: Any) -> tuple[Any, ...]:
        spec, query, key, value, output, log_sum_exp = ctx.spec, *ctx.saved_tensors
        if not torch.is_grad_enabled() and _holds_values(d_output) and _is_eager() and not is_wrapped(d_output):
            offset = spec.request.at.offset
            found = spec.calls.gradients(query, key, value, output, log_sum_exp, d_output, offset)
            if found is None and not d_output.is_contiguous():  # such as that of a sum, which is one number
                found = spec.calls.gradients(query, key, value, output, log_sum_exp, d_output.contiguous(), offset)
            if found is not None:
                needs = ctx.needs_input_grad[2:]
                return (None, None, *(x if need else None for x, need in zip(found, needs)))
        ctx.call, ctx.request, ctx.names = spec.call, spec.request, ("query", "key", "value")
        dtype = dtype_name(query, "query")
        ctx.plan = plan_for(spec.call, Shape.of(query, key, value, spec.call), dtype, spec.request.at)
        return Attention.backward(ctx, d_output, None, None)


__all__ = ["Plain", "attend", "plain"]
