"""Attention under the transforms of torch.func: vmap, grad, vjp, jacrev, and these in one another."""

from __future__ import annotations

import dataclasses
from typing import Any, Optional, Sequence

import torch
from torch import Tensor

from .._errors import InvalidArgument
from ._batches import is_legacy, legacy_rule, vmap_rule
from ._operator import NO_SECOND, Inputs


def check_transforms(function: str, argument: str = "query") -> None:
    """Throws inside transforms for which the operators have no rule."""
    kinds = torch._C._functorch.TransformType
    for level in torch._C._functorch.get_interpreter_stack() or ():
        if level.key() not in (kinds.Vmap, kinds.Grad):
            raise InvalidArgument(
                function,
                argument,
                "a call outside jvp, jacfwd, hessian and functionalize of torch.func (vmap, grad, vjp and jacrev "
                "serve: jacrev gives the Jacobian that jacfwd gives)",
                f"one inside {level.key().name.lower()}",
            )


# The place of the first parameter among the tensors of a form: behind query, key, value, and those of lengths,
# positions and the seed.
_FIRST = 8


@dataclasses.dataclass(frozen=True)
class _Form:
    """The operators' arguments that are not tensors."""

    num_parameters: int
    query_offset: Optional[int]
    spec: str

    def inputs(self, tensors: Sequence[Any]) -> Inputs:
        query, key, value = tensors[:3]
        others, rest = tensors[3:_FIRST], tensors[_FIRST:]
        parameters, masks = rest[: self.num_parameters], rest[self.num_parameters :]
        return Inputs(query, key, value, parameters, masks, *others, self.query_offset, self.spec)


class _Attend(torch.autograd.Function):
    """The operator fovea::attend; PyTorch's registered gradients do not support torch.func; those of a Function
    do."""

    @staticmethod
    def forward(form: _Form, *tensors: Any) -> tuple[Tensor, ...]:
        return tuple(torch.ops.fovea.attend(*form.inputs(tensors)))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.set_materialize_grads(False)
        ctx.form, *tensors = inputs
        ctx.save_for_backward(*tensors, output[0], output[1])

    @staticmethod
    def backward(ctx: Any, *losses: Any) -> tuple[Any, ...]:
        *tensors, output, log_sum_exp = ctx.saved_tensors
        if tensors[2] is None:
            losses = (None, *losses[1:])
        nothing = [None] * len(tensors)
        if all(x is None for x in losses):
            return (None, *nothing)
        needs = ctx.needs_input_grad[1:]
        wanted = (*needs[:3], *needs[_FIRST : _FIRST + ctx.form.num_parameters])
        found = iter(_Gradients.apply(ctx.form, tuple(wanted), *losses, output, log_sum_exp, *tensors))
        places = [0, 1, 2, *range(_FIRST, _FIRST + ctx.form.num_parameters)]
        for place, want in zip(places, wanted):
            nothing[place] = next(found) if want else None
        return (None, *nothing)

    @staticmethod
    def vmap(info: Any, in_dims: Any, *arguments: Any) -> Any:
        return vmap_rule(_Attend.apply)(info, in_dims, *arguments)


class _Gradients(torch.autograd.Function):
    """The operator fovea::attend_backward, which refuses a second derivative."""

    @staticmethod
    def forward(form: _Form, wanted: tuple[bool, ...], *tensors: Any) -> tuple[Tensor, ...]:
        *losses_and_results, inputs = (*tensors[:5], form.inputs(tensors[5:]))
        return tuple(torch.ops.fovea.attend_backward(*losses_and_results, *inputs, list(wanted)))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *losses: Any) -> None:
        raise RuntimeError(NO_SECOND)

    @staticmethod
    def vmap(info: Any, in_dims: Any, *arguments: Any) -> Any:
        return vmap_rule(_Gradients.apply)(info, in_dims, *arguments)


def _taken_apart(given: Inputs) -> tuple[_Form, tuple[Any, ...]]:
    """(the arguments that are not tensors, the tensors in the order of `_Form.inputs`)."""
    form = _Form(len(given.parameters), given.query_offset, given.spec)
    others = given[5:10]
    return form, (*given[:3], *others, *given.parameters, *given.masks)


def attend(given: Inputs) -> tuple[Tensor, ...]:
    """The operator fovea::attend inside transforms of torch.func."""
    form, tensors = _taken_apart(given)
    found: tuple[Tensor, ...] = _Attend.apply(form, *tensors)
    return found


def gradients(
    given: Inputs,
    wanted: Sequence[bool],
    losses: Sequence[Optional[Tensor]],
    output: Tensor,
    log_sum_exp: Tensor,
) -> tuple[Tensor, ...]:
    """The operator fovea::attend_backward for batched losses, by those of query, key, value and parameters that are
    `wanted`."""
    form, inputs = _taken_apart(given)

    def call(*tensors: Any) -> Any:
        return _Gradients.apply(form, tuple(wanted), *tensors)

    # PyTorch's older vmap drops what a Function of a whole batch records, so each entry gets its own Function.
    call = legacy_rule(call) if any(map(is_legacy, losses)) else call
    found: tuple[Tensor, ...] = call(*losses, output, log_sum_exp, *inputs)
    return found
