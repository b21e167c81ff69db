"""Derivatives of a call on tensors: the engine's for outputs and weights, and those of the log-sum-exp, which are
made from them."""

from __future__ import annotations

import dataclasses
from typing import Optional, Sequence

import torch
from torch import Tensor

from .. import _core
from .._arrays import dtype_name
from .._engine import Request, backward
from .._errors import InvalidArgument
from .._properties import has_constant_weights, has_estimated_gradient, has_log_sum_exp, key_rows, needs_whole_rows
from .._spec import Call, Shape, Structure, plan_for
from ._tensors import TENSORS

Tensors = dict[str, Tensor]


@dataclasses.dataclass(frozen=True)
class Loss:
    """Derivatives of a loss by the results of `attention`; None: the loss does not depend on that result."""

    output: Optional[Tensor]
    log_sum_exp: Optional[Tensor]
    weights: Optional[Tensor]


@dataclasses.dataclass(frozen=True)
class Ran:
    """A forward pass.

    Args:
        inputs: as `_engine.operands` gives them.
        output, log_sum_exp: as `_engine.forward` wrote them.
    """

    plan: "_core.Plan"
    call: Call
    inputs: Tensors
    request: Request
    output: Optional[Tensor]
    log_sum_exp: Optional[Tensor]


def is_of_scores(name: str) -> bool:
    """Whether the loss depends on this argument through the scores. Values and weight mods come after the scores."""
    return name != "value" and not name.startswith("weight_mods[")


def check_lse_differentiable(structure: Structure) -> None:
    """Throws for a log-sum-exp that has no derivative here.

    For Softmax its derivative by the scores is the softmax. The same holds for SoftmaxWithSink, whose log-sum-exp
    does not contain the sink. Other normalisers return another number in its place. Scores that depend on the weights
    of other rows, or on a table for each query, take whole-row kernels. Their backward pass computes the row means
    itself, while the method below passes them in.
    """
    if has_log_sum_exp(structure.normalizer):
        why = needs_whole_rows(structure.score, structure.mods)
    else:
        why = f"normalizer {structure.normalizer}"
    if why:
        raise InvalidArgument(
            "attention",
            "log_sum_exp",
            "no gradient from it (detach it): it has one for Softmax and SoftmaxWithSink, but with the score "
            "Coverage or the mod RelativeKeyBias",
            why,
        )


def derivatives(ran: Ran, loss: Loss, wanted: Sequence[str]) -> Tensors:
    """Derivatives by the arguments named in `wanted`, without those that the loss does not depend on."""
    results: Tensors = {}
    if loss.output is not None or loss.weights is not None:
        results = _of_output_and_weights(ran, loss, wanted)
    if loss.log_sum_exp is not None:
        for name, x in _of_log_sum_exp(ran, loss.log_sum_exp, wanted).items():
            results[name] = results[name] + x if name in results else x
    return results


def _of_output_and_weights(ran: Ran, loss: Loss, wanted: Sequence[str]) -> Tensors:
    normalizer = ran.call.structure.normalizer
    if has_constant_weights(normalizer):
        wanted = [name for name in wanted if not is_of_scores(name)]
    if has_estimated_gradient(normalizer) and any(map(is_of_scores, wanted)):
        raise InvalidArgument(
            "attention",
            "normalizer",
            "a normaliser whose weights have a derivative by the scores (HardSample's is an estimate: detach "
            "what makes the scores, and add fovea.torch.score_function of the same seed to the loss)",
            "HardSample()",
        )
    if loss.output is None:
        wanted = [name for name in wanted if name != "value"]
    if not wanted:
        return {}
    given = {"output": ran.output, "log_sum_exp": ran.log_sum_exp, "d_output": loss.output, "d_weights": loss.weights}
    arrays = {name: TENSORS.operand(x) for name, x in given.items() if x is not None}
    request = ran.request if loss.weights is not None else _of_all_weights(ran.request)
    return backward(ran.plan, ran.call, ran.inputs, arrays, wanted, request)


def _of_all_weights(request: Request) -> Request:
    return dataclasses.replace(request, weight_heads=(), weight_rows=())


def _of_log_sum_exp(ran: Ran, d_lse: Tensor, wanted: Sequence[str]) -> Tensors:
    """d lse / d s = P, and the engine gives dS = P·(dP - D) with dP = d_output · valueᵀ and D = <d_output,
    output>. So a call with values 0 of width 1, d_output = 1 and "output" = -d_lse gives dS = P·d_lse for all
    arguments of the scores. It costs a second pass."""
    assert ran.log_sum_exp is not None
    check_lse_differentiable(ran.call.structure)
    of_lse = lambda name: is_of_scores(name) and not name.startswith("normalizer.")  # noqa: E731
    wanted = [name for name in wanted if of_lse(name)]
    if not wanted:
        return {}
    structure = dataclasses.replace(
        ran.call.structure,
        normalizer="softmax",
        weight_mods=(),
        dropout=0.0,
    )
    call = dataclasses.replace(ran.call, structure=structure)
    # 16 bits would round d_lse, which may also exceed their range.
    own = ran.inputs["query"].dtype
    wide = torch.float64 if own == torch.float64 else torch.float32
    inputs = {name: x.to(wide) for name, x in ran.inputs.items() if of_lse(name)}
    query, key = inputs["query"], inputs.get("key")
    if key is None:
        heads, keys = query.shape[1], inputs[key_rows(structure.score)].shape[0]
    else:
        heads, keys = key.shape[1], key.shape[2]
    inputs["value"] = query.new_zeros(()).expand(query.shape[0], heads, keys, 1)
    d_lse = d_lse.to(wide)
    loss = {
        "output": -d_lse.unsqueeze(-1).contiguous(),
        "log_sum_exp": ran.log_sum_exp.contiguous(),
        "d_output": torch.ones_like(d_lse).unsqueeze(-1),
    }
    request = _of_all_weights(ran.request)
    shape = Shape.of(query, key, inputs["value"], call)
    plan = plan_for(call, shape, dtype_name(query, "query"), request.at)
    found = backward(plan, call, inputs, loss, wanted, request)
    return {name: x.to(own) if name in ("query", "key") else x for name, x in found.items()}
