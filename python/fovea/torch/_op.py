"""`fovea.attention` on tensors: the choice of the code path.

Three code paths with the same arithmetic. Without gradients the engine is called directly. With gradients an autograd
function is put around it. Under torch.compile, torch.export, functorch and dispatch modes it is the operator
fovea::attend, which costs more for each call but is visible to them.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Optional

import torch
from torch import Tensor

from .. import masks
from .._arrays import compute_dtype, described, dtype_name
from .._engine import Request, backward, forward, operands
from .._errors import InvalidArgument
from .._mask import any_part, replaced
from .._positions import Positions
from .._spec import Call, Shape, plan_for
from .._value import check_no_gradient, integers
from . import _text
from ._derivatives import Loss, Ran, derivatives
from ._batches import is_wrapped
from ._kinds import PLAIN, has_tangent, is_known, is_transformed
from ._operator import NO_SECOND, Inputs
from ._tensors import TENSORS
from ._transforms import attend, check_transforms, gradients

_FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def new_seed() -> Tensor:
    """A seed from PyTorch's CPU generator, also if the call is part of a graph."""
    return torch.randint(0, 2**63 - 1, (), dtype=torch.int64)


def attention(
    call: Call, query: Tensor, key: Any, value: Any, request: Request, seed: Any, out: Optional[Tensor] = None
) -> Any:
    """See `fovea.attention`. `request.seed` is not read: `seed` is None, a number or a tensor of one."""
    query, key, value = _autocast(
        _checked("query", query), _checked("key", key), _checked("value", value)
    )
    if call.parameters:
        call = dataclasses.replace(call, parameters=_parameters(call, query.dtype))
    if not _is_plain(query, key, value, *call.parameters.values()):
        if out is not None:
            raise InvalidArgument("attention", "out", "None in a graph", described(out))
        return _through_operator(call, query, key, value, request, seed)
    if call.structure.draws:
        request = dataclasses.replace(request, seed=_number(new_seed() if seed is None else seed))
    if not isinstance(call.key_lengths, tuple):
        call = dataclasses.replace(call, key_lengths=integers(call.key_lengths, "KeyLengths.lengths"))
    request = dataclasses.replace(request, at=request.at.known())
    tensors = (query, key, value, *call.parameters.values())
    if torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in tensors):
        if out is not None:
            raise InvalidArgument("attention", "out", "None where gradients are wanted", described(out))
        outputs = Attention.apply(call, request, *tensors)
    else:
        outputs = _run(call, request, query, key, value, out)[1]
    return _chosen(outputs, request, value is not None)


def checked_for_plan(call: Call, query: Tensor, key: Any, value: Any, seed: Any) -> int:
    """Checks that a plan can take the arguments, and returns the seed."""
    tensors = {"query": query, "key": key, "value": value}
    for name, x in tensors.items():
        _checked(name, x)
    tensors.update((name, x) for name, x in call.parameters.items() if isinstance(x, Tensor))
    for name, x in tensors.items():
        check_no_gradient("attention", name, x, " (a plan gives none: fovea.attention does, or detach it)")
    if not _is_plain(*tensors.values()):
        raise InvalidArgument("attention", "query", "tensors of memory (a graph has fovea.attention)", "a graph's")
    if seed is None and not call.structure.draws:
        return 0
    return _number(new_seed() if seed is None else seed)


def _checked(argument: str, x: Any) -> Any:
    if x is None and argument != "query":
        return None
    return checked_tensor("attention", argument, x, "as the query is one")


def checked_tensor(function: str, argument: str, x: Any, why: str) -> Tensor:
    """x, if it is a dense tensor of floats in the CPU's memory."""
    if not isinstance(x, Tensor):
        raise InvalidArgument(function, argument, f"a tensor of PyTorch, {why}", described(x))
    if not is_known(x):
        raise InvalidArgument(function, argument, "a tensor of PyTorch's own class", f"a {type(x).__name__}")
    if x.device.type != "cpu":
        raise InvalidArgument(function, argument, "a tensor on the CPU", f"one on {x.device}")
    if x.layout is not torch.strided or x.dtype not in _FLOATS:
        got = described(x) if x.layout is torch.strided else f"{x.layout} {described(x)}"
        raise InvalidArgument(function, argument, "a dense tensor of f32, f64, bf16 or f16", got)
    return x


def _autocast(*tensors: Any) -> tuple[Any, ...]:
    """Casts all tensors except f64 to autocast's dtype, as PyTorch's attention does under autocast. Without autocast
    all must have one dtype."""
    if torch.is_autocast_enabled("cpu"):
        to = torch.get_autocast_dtype("cpu")
        tensors = tuple(x if x is None or x.dtype == torch.float64 else x.to(to) for x in tensors)
    query = tensors[0]
    for name, x in zip(("key", "value"), tensors[1:]):
        if x is not None and x.dtype != query.dtype:
            raise InvalidArgument("attention", name, f"the dtype of the query, {query.dtype}", described(x))
    return tensors


def _parameters(call: Call, dtype: torch.dtype) -> dict[str, Tensor]:
    """The parameters in the dtype that the engine accumulates in; their gradients still flow to the originals."""
    found = {}
    to = "f64" if dtype == torch.float64 else "f32"
    for name, x in call.parameters.items():
        if isinstance(x, Tensor) and not is_known(x):
            raise InvalidArgument("attention", name, "a tensor of PyTorch's own class", f"a {type(x).__name__}")
        made = TENSORS.parameter(x, to, name)
        if made.device.type != "cpu":
            raise InvalidArgument("attention", name, "a tensor on the CPU", f"one on {made.device}")
        found[name] = made
    return found


def _is_plain(*tensors: Optional[Tensor]) -> bool:
    return are_plain("attention", "query", *tensors)


def are_plain(function: str, argument: str, *tensors: Optional[Tensor]) -> bool:
    """Whether all tensors are plain and no mode or transform records operations on them. Throws with these names where
    a call cannot be served."""
    if torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack() > 0:
        return False
    if is_transformed():
        check_transforms(function, argument)
        return False
    if has_tangent(*tensors):
        raise InvalidArgument(
            function,
            argument,
            f"tensors without forward-mode derivatives, which {function} has not (backward it has)",
            "a dual tensor of torch.autograd.forward_ad",
        )
    if torch._C._get_tracing_state() is not None:
        return False
    return all(x is None or type(x) in PLAIN for x in tensors)


def _number(seed: Any) -> int:
    if isinstance(seed, Tensor):
        if seed.numel() != 1 or seed.is_floating_point() or seed.is_complex():
            raise InvalidArgument("attention", "seed", "a whole number", described(seed))
        return int(seed.item()) % (1 << 64)
    return int(seed)


def _chosen(outputs: tuple[Any, Any, Any], request: Request, has_value: bool) -> Any:
    found = [
        *([outputs[0]] if has_value else []),
        *([outputs[1]] if request.lse else []),
        *([outputs[2]] if request.weights or not has_value else []),
    ]
    return found[0] if len(found) == 1 else tuple(found)


def _run(
    call: Call, request: Request, query: Any, key: Any, value: Any, out: Any = None
) -> tuple[Any, tuple[Any, Any, Any]]:
    """(the plan, (output, log-sum-exp, weights))."""
    dtype = dtype_name(query, "query")
    shape = Shape.of(query, key, value, call)
    plan = plan_for(call, shape, dtype, request.at)
    outputs = forward(plan, call, operands(call, query, key, value, dtype), shape, dtype, request, out)
    return plan, (outputs.get("output"), outputs.get("log_sum_exp"), outputs.get("weights"))


class Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, call: Call, request: Request, *tensors: Optional[Tensor]) -> tuple[Any, Any, Any]:
        ctx.set_materialize_grads(False)
        query, key, value = tensors[:3]
        own = dataclasses.replace(call, parameters=dict(zip(call.parameters, tensors[3:])))
        plan, outputs = _run(own, dataclasses.replace(request, lse=True), query, key, value)
        # The parameters come from saved_tensors, which guards them against in-place changes.
        ctx.call, ctx.request, ctx.plan = dataclasses.replace(call, parameters={}), request, plan
        ctx.names = ("query", "key", "value", *call.parameters)
        ctx.save_for_backward(*tensors, *outputs[:2])
        return outputs

    @staticmethod
    def backward(ctx: Any, d_output: Any, d_log_sum_exp: Any, d_weights: Any) -> tuple[Any, ...]:
        if is_wrapped(d_output, d_log_sum_exp, d_weights):
            found = Attention._gradients_of_batches(ctx, d_output, d_log_sum_exp, d_weights)
            return (None, None, *(found.get(name) for name in ctx.names))
        with torch.no_grad():
            found = Attention._gradients(ctx, d_output, d_log_sum_exp, d_weights)
        if torch.is_grad_enabled() and found:
            came = [x for x in (d_output, d_log_sum_exp, d_weights) if x is not None]
            found = dict(zip(found, _Once.apply(len(found), *found.values(), *came, *ctx.saved_tensors)))
        return (None, None, *(found.get(name) for name in ctx.names))

    @staticmethod
    def _gradients(ctx: Any, d_output: Any, d_log_sum_exp: Any, d_weights: Any) -> dict[str, Tensor]:
        *tensors, output, log_sum_exp = ctx.saved_tensors
        given = dict(zip(ctx.names, tensors))
        call = dataclasses.replace(ctx.call, parameters=dict(list(given.items())[3:]))
        query, key, value = tensors[:3]
        inputs = operands(call, query, key, value, dtype_name(query, "query"))
        wanted = [name for name, need in zip(ctx.names, ctx.needs_input_grad[2:]) if need]
        ran = Ran(ctx.plan, call, inputs, ctx.request, output, log_sum_exp)
        return derivatives(ran, Loss(d_output, d_log_sum_exp, d_weights), wanted)

    @staticmethod
    def _gradients_of_batches(ctx: Any, d_output: Any, d_log_sum_exp: Any, d_weights: Any) -> dict[str, Tensor]:
        """Gradients of batched losses, by the operator, which has rules for batches. Their values are not read."""
        *tensors, output, log_sum_exp = ctx.saved_tensors
        call = dataclasses.replace(ctx.call, parameters=dict(zip(ctx.names[3:], tensors[3:])))
        query, key, value = tensors[:3]
        inputs = _operator_inputs(call, query, key, value, ctx.request, ctx.request.seed)
        wanted = ctx.needs_input_grad[2:]
        names = [name for name, need in zip(ctx.names, wanted) if need]
        losses = (None if value is None else d_output, d_log_sum_exp, d_weights)
        return dict(zip(names, gradients(inputs, wanted, losses, output, log_sum_exp)))


class _Once(torch.autograd.Function):
    """Passes gradients on and refuses a second derivative, which would be missing silently."""

    @staticmethod
    def forward(ctx: Any, count: int, *tensors: Optional[Tensor]) -> tuple[Any, ...]:
        return tuple(x.detach() for x in tensors[:count])  # type: ignore[union-attr]

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> None:
        raise RuntimeError(NO_SECOND)


def _through_operator(call: Call, query: Tensor, key: Any, value: Any, request: Request, seed: Any) -> Any:
    inputs = _operator_inputs(call, query, key, value, request, seed)
    outputs = attend(inputs) if is_transformed() else torch.ops.fovea.attend(*inputs)
    return _chosen(outputs, request, value is not None)


def _operator_inputs(call: Call, query: Tensor, key: Any, value: Any, request: Request, seed: Any) -> Inputs:
    call = _without_predicates(call, query, key, value, request.at)
    text, arrays = _text.write(call, request)
    lengths = call.key_lengths
    if isinstance(lengths, tuple):
        lengths = torch.tensor(lengths, dtype=torch.int64) if lengths else None
    offset, offsets = request.at.offset, None
    if isinstance(offset, (tuple, Tensor)):
        offset, offsets = None, torch.as_tensor(offset)
    drawn = None
    if call.structure.draws:
        drawn = new_seed() if seed is None else seed
        if not isinstance(drawn, Tensor):
            drawn = torch.full((), drawn - (1 << 64) if drawn >= 1 << 63 else drawn, dtype=torch.int64)
    return Inputs(
        query,
        key,
        value,
        list(call.parameters.values()),
        [torch.as_tensor(x) for x in arrays],
        lengths,
        offsets,
        *(None if x is None else torch.as_tensor(x) for x in (request.at.query_starts, request.at.key_starts)),
        drawn,
        offset,
        text,
    )


def _without_predicates(call: Call, query: Tensor, key: Any, value: Any, at: Positions) -> Call:
    """Replaces functions by arrays of their answers, because a function has no text. Inside a graph the function is
    traced like any PyTorch code: its four index arrays are tensors there."""
    mask = call.structure.mask if call.array_mask is None else call.array_mask
    if not any_part(mask, masks.Predicate):
        return call
    other = key if key is not None else value
    if other is None:
        raise InvalidArgument("attention", "mask", "no function in a graph without keys and values", "one")
    batch, heads, rows, keys = query.shape[0], query.shape[1], query.shape[2], other.shape[2]
    if at.packed:
        raise InvalidArgument("attention", "mask", "no function in a graph beside query_starts", "one")
    first = keys - rows if at.offset is None else at.offset
    if isinstance(first, (tuple, Tensor)):
        first = torch.as_tensor(first).reshape(-1, 1, 1, 1)
    b = torch.arange(batch).reshape(-1, 1, 1, 1)
    h = torch.arange(heads).reshape(1, -1, 1, 1)
    i = torch.arange(rows).reshape(1, 1, -1, 1) + first
    j = torch.arange(keys).reshape(1, 1, 1, -1)

    def answered(part: masks.Mask) -> masks.Mask:
        if not isinstance(part, masks.Predicate):
            return part
        said = torch.as_tensor(part.visible(b, h, i, j))
        # NumPy's truth values of tensors are returned as uint8.
        return masks.ArrayMask(said.bool() if said.dtype == torch.uint8 else said)

    return dataclasses.replace(
        call,
        structure=dataclasses.replace(call.structure, mask=masks.Everything()),
        array_mask=replaced(mask, answered),
    )


def score_function(
    call: Call, query: Tensor, key: Any, value: Any, advantage: Any, request: Request, seed: Any
) -> Tensor:
    """See `fovea.torch.score_function`."""
    if is_transformed():
        raise InvalidArgument(
            "score_function",
            "query",
            "a call outside the transforms of torch.func (torch.autograd.grad has its gradients)",
            "one inside vmap, grad or another of them",
        )
    query, key, value = _autocast(
        _checked("query", query), _checked("key", key), _checked("value", value)
    )
    call = dataclasses.replace(call, parameters=_parameters(call, query.dtype))
    advantage = checked_tensor("attention", "advantage", advantage, "as the query is one").detach()
    shape = Shape.of(query, key, value, call)
    rows = (shape.batch, shape.num_query_heads, shape.query_len)
    if tuple(advantage.shape) != rows:
        raise InvalidArgument("attention", "advantage", f"a number for each row, {list(rows)}", described(advantage))
    request = dataclasses.replace(request, seed=_number(seed))
    return _ScoreFunction.apply(call, request, advantage, query, key, value, *call.parameters.values())


class _ScoreFunction(torch.autograd.Function):
    """0, with a gradient."""

    @staticmethod
    def forward(ctx: Any, call: Call, request: Request, advantage: Tensor, *tensors: Optional[Tensor]) -> Tensor:
        ctx.call, ctx.request = dataclasses.replace(call, parameters={}), request
        ctx.names = ("query", "key", "value", *call.parameters)
        ctx.save_for_backward(advantage, *tensors)
        return advantage.new_zeros(())

    @staticmethod
    def backward(ctx: Any, d_result: Tensor) -> tuple[Any, ...]:
        if is_wrapped(d_result):  # the gradient is a multiple of d_result, a number
            found = _ScoreFunction.backward(ctx, torch.ones((), dtype=d_result.dtype))
            return tuple(x if x is None else x * d_result.to(x.dtype) for x in found)
        advantage, *tensors = ctx.saved_tensors
        given = dict(zip(ctx.names, tensors))
        call = dataclasses.replace(ctx.call, parameters=dict(list(given.items())[3:]))
        query, key, value = tensors[:3]
        dtype = dtype_name(query, "query")
        wide = getattr(torch, "float64" if compute_dtype(dtype) == "f64" else "float32")
        plan = plan_for(call, Shape.of(query, key, value, call), dtype, ctx.request.at)
        wanted = [n for n, need in zip(ctx.names, ctx.needs_input_grad[3:]) if need and n != "value"]
        loss = {"advantage": (advantage.to(wide) * d_result.to(wide)).contiguous()}
        inputs = operands(call, query, key, value, dtype)
        found = backward(plan, call, inputs, loss, wanted, ctx.request) if wanted else {}
        return (None, None, None, *(found.get(name) for name in ctx.names))


__all__ = ["Attention", "are_plain", "attention", "checked_tensor", "score_function"]
