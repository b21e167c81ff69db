"""The operators fovea::attend and fovea::attend_backward, as which torch.compile, torch.export and dispatch modes see
a call.

A graph holds one opaque node for a call. The call's arrays are inputs of that node, so that a mask which is a new
array in every step keeps nothing alive.
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple, Optional, Sequence

import torch
from torch import Tensor

from .._arrays import compute_dtype, dtype_name
from .._engine import forward, operands
from .._errors import InvalidArgument
from .._positions import Positions
from .._properties import key_rows
from .._spec import Shape, plan_for
from . import _report
from ._derivatives import Loss, Ran, derivatives
from ._registry import is_registered, register, save_nothing
from ._tensors import TENSORS
from ._text import Known, read

_INPUTS = (
    "Tensor query, Tensor? key, Tensor? value, Tensor[] parameters, Tensor[] masks, Tensor? key_lengths, "
    "Tensor? query_offsets, Tensor? query_starts, Tensor? key_starts, Tensor? seed, SymInt? query_offset, str spec"
)
_ATTEND = f"({_INPUTS}) -> (Tensor output, Tensor log_sum_exp, Tensor weights)"
# The gradients of query, key, value and parameters, as far as `wanted`, in this order.
_ATTEND_BACKWARD = (
    "(Tensor? d_output, Tensor? d_log_sum_exp, Tensor? d_weights, Tensor output, Tensor log_sum_exp, "
    f"{_INPUTS}, bool[] wanted) -> Tensor[]"
)


class Inputs(NamedTuple):
    """The arguments of fovea::attend."""

    query: Tensor
    key: Optional[Tensor]
    value: Optional[Tensor]
    parameters: Sequence[Tensor]
    masks: Sequence[Tensor]
    key_lengths: Optional[Tensor]
    query_offsets: Optional[Tensor]  # instead of query_offset
    query_starts: Optional[Tensor]
    key_starts: Optional[Tensor]
    seed: Optional[Tensor]
    query_offset: Optional[int]
    spec: str


class _Ready:
    """A call for the engine, made from the operators' arguments."""

    def __init__(self, given: Inputs):
        query, key, value = given[:3]
        known = read(given.spec)
        lengths = () if given.key_lengths is None else tuple(given.key_lengths.tolist())
        self.call = known.call(given.parameters, given.masks, lengths)
        # A tensor holds the 64 bits of the seed as a signed number.
        drawn = 0 if given.seed is None else int(given.seed.item()) % (1 << 64)
        offset = given.query_offset if given.query_offsets is None else given.query_offsets
        at = Positions(offset, given.query_starts, given.key_starts).known()
        self.request = dataclasses.replace(known.request, at=at, seed=drawn, lse=True)
        self.dtype = dtype_name(query, "query")
        self.shape = Shape.of(query, key, value, self.call)
        self.plan = plan_for(self.call, self.shape, self.dtype, at)
        self.inputs = operands(self.call, query, key, value, self.dtype)
        self.names = arguments(known)


def arguments(known: Known) -> tuple[str, ...]:
    return ("query", "key", "value", *known.parameters)


def _attend(query: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    ready = _Ready(Inputs(query, *rest))
    _report.ran_in_graph()
    outputs = forward(ready.plan, ready.call, ready.inputs, ready.shape, ready.dtype, ready.request)
    nothing = query.new_empty
    return (
        outputs["output"] if "output" in outputs else nothing(0),
        outputs["log_sum_exp"],
        outputs["weights"] if "weights" in outputs else nothing(0),
    )


def _attend_fake(*inputs: Any) -> tuple[Tensor, Tensor, Tensor]:
    given = Inputs(*inputs)
    query, key, value = given[:3]
    known = read(given.spec)
    batch, heads, rows = query.shape[0], query.shape[1], query.shape[2]
    wide = torch.float64 if query.dtype == torch.float64 else torch.float32
    if key is not None:
        keys = key.shape[2]
    elif value is not None:
        keys = value.shape[2]
    else:
        keys = given.parameters[known.parameters.index(key_rows(known.structure.score))].shape[0]
    if value is None:
        output = query.new_empty(0)
    elif known.request.row_major:
        output = query.new_empty(batch, heads, rows, value.shape[3])
    else:
        output = TENSORS.following(query, value.shape[3])
    weights = query.new_empty(0)
    if known.request.weights or value is None:
        if given.query_starts is not None:  # whose numbers a graph does not know
            raise InvalidArgument("attention", "return_weights", "False in a graph beside query_starts", "True")
        sizes = (len(known.request.weight_heads) or heads, len(known.request.weight_rows) or rows)
        weights = query.new_empty(batch, *sizes, keys, dtype=wide)
    return output, query.new_empty(batch, heads, rows, dtype=wide), weights


def _attend_backward(
    d_output: Optional[Tensor],
    d_log_sum_exp: Optional[Tensor],
    d_weights: Optional[Tensor],
    output: Tensor,
    log_sum_exp: Tensor,
    *inputs_and_wanted: Any,
) -> list[Tensor]:
    *inputs, wanted = inputs_and_wanted
    ready = _Ready(Inputs(*inputs))
    # A graph passes zeros for outputs that no loss uses: these need no pass and no derivative.
    if d_log_sum_exp is not None and not d_log_sum_exp.any():
        d_log_sum_exp = None
    if d_weights is not None and not d_weights.any():
        d_weights = None
    names = [name for name, want in zip(ready.names, wanted) if want]
    ran = Ran(ready.plan, ready.call, ready.inputs, ready.request, output if ready.shape.value_dim else None, log_sum_exp)
    found = derivatives(ran, Loss(d_output, d_log_sum_exp, d_weights), names)
    wide = getattr(torch, "float64" if compute_dtype(ready.dtype) == "f64" else "float32")
    return [
        found[name] if name in found else _zeros(ready.inputs[name], wide, name)
        for name in names
    ]


def _zeros(like: Tensor, wide: torch.dtype, name: str) -> Tensor:
    if name in ("query", "key", "value"):
        return TENSORS.like(like).zero_()
    return like.new_zeros(like.shape, dtype=wide)


def _attend_backward_fake(*losses_results_inputs_and_wanted: Any) -> list[Tensor]:
    *_, wanted = losses_results_inputs_and_wanted
    given = Inputs(*losses_results_inputs_and_wanted[5:-1])
    operands = [TENSORS.like(x) for x, want in zip(given[:3], wanted) if want and x is not None]
    return operands + [x.new_empty(x.shape) for x, want in zip(given.parameters, wanted[3:]) if want]


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    given = Inputs(*inputs)
    ctx.set_materialize_grads(False)
    ctx.spec, ctx.query_offset = given.spec, given.query_offset
    ctx.counts = (len(given.parameters), len(given.masks))
    others = given[5:10]
    ctx.save_for_backward(*given[:3], *others, *output[:2], *given.parameters, *given.masks)


def _backward(
    ctx: Any, d_output: Optional[Tensor], d_lse: Optional[Tensor], d_weights: Optional[Tensor]
) -> tuple[Any, ...]:
    saved = ctx.saved_tensors  # once: a checkpoint gives each tensor one time
    query, key, value, *others, output, lse = saved[:10]
    rest = saved[10:]
    count = ctx.counts[0]
    parameters, masks = rest[:count], rest[count:]
    own = [bool(need) for need in ctx.needs_input_grad[3]] if count else []
    wanted = [bool(need) for need in ctx.needs_input_grad[:3]] + own
    inputs = Inputs(query, key, value, parameters, masks, *others, ctx.query_offset, ctx.spec)
    if d_output is None and d_lse is None and d_weights is None:
        return (None,) * len(Inputs._fields)
    if value is None:
        d_output = None
    found = iter(torch.ops.fovea.attend_backward(d_output, d_lse, d_weights, output, lse, *inputs, wanted))
    of = [next(found) if want else None for want in wanted]
    return (*of[:3], of[3:], [None] * len(masks), *[None] * (len(Inputs._fields) - 5))


NO_SECOND = (
    "fovea: attention has no second derivatives (a gradient of it, made with create_graph=True, was "
    "differentiated)"
)


def _twice(ctx: Any, *grads: Any) -> None:
    raise RuntimeError(NO_SECOND)


if not is_registered("attend"):
    register("attend", _ATTEND, _attend, _attend_fake, _backward, _setup_context)
    register("attend_backward", _ATTEND_BACKWARD, _attend_backward, _attend_backward_fake, _twice, save_nothing)

# A graph calls either.
FORWARD = (torch.ops.fovea.attend, torch.ops.fovea.attend.default)
