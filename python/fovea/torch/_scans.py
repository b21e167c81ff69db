"""`fovea.selective_scan` and `fovea.causal_conv` on tensors: an operator for each, and one for its gradients.

Without gradients the engine is called directly. With gradients and in graphs a call is the operator.
"""

from __future__ import annotations

from typing import Any, Optional, Sequence

import torch
from torch import Tensor

from .._arrays import described
from .._errors import InvalidArgument
from .._recurrence_engine import Tokens
from .._scans_engine import CONV, KINDS, SCAN, Kind, Ready
from . import _report
from ._kinds import is_known
from ._op import are_plain, checked_tensor
from ._recurrence import token_tensors
from ._registry import is_registered, register, save_nothing
from ._tensors import TENSORS


def _wide(x: Tensor) -> torch.dtype:
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def _ready(kind: Kind, tensors: Sequence[Optional[Tensor]], option: str) -> Ready:
    """tensors: the arrays in the order of the kind, starts and present."""
    arrays = dict(zip(kind.axes, tensors))
    return Ready(kind, option, arrays, Tokens(*tensors[len(kind.axes) :]))


def _run(kind: Kind, arguments: Sequence[Any]) -> tuple[Tensor, Tensor]:
    _report.ran_in_graph()
    *tensors, option, wants_state = arguments
    output, state = _ready(kind, tensors, option).forward(wants_state)
    return output, output.new_empty(0) if state is None else state


def _run_fake(kind: Kind, arguments: Sequence[Any]) -> tuple[Tensor, Tensor]:
    *tensors, _, wants_state = arguments
    arrays = dict(zip(kind.axes, tensors))
    x, starts = arrays["x"], tensors[len(kind.axes)]
    output, state = x.new_empty(x.shape), x.new_empty(0)
    if wants_state:
        sequences = x.shape[0] if starts is None else starts.shape[0] - 1
        if kind is SCAN:
            rest = (x.shape[2], arrays["a"].shape[1])
        else:
            rest = (arrays["weight"].shape[1] - 1, x.shape[2])
        state = x.new_empty((sequences, *rest), dtype=_wide(x))
    return output, state


def _derivatives(kind: Kind, arguments: Sequence[Any]) -> list[Tensor]:
    d_output, d_final_state, *tensors, option, wants_state, wanted = arguments
    ready = _ready(kind, tensors, option)
    names = [name for name, want in zip(kind.axes, wanted) if want]
    found = ready.backward(d_output, d_final_state if wants_state else None, names)
    return [found[name] for name in names]


def _derivatives_fake(kind: Kind, arguments: Sequence[Any]) -> list[Tensor]:
    _, _, *tensors, _, _, wanted = arguments
    x = tensors[0]
    return [
        given.new_empty(given.shape, dtype=x.dtype if name in kind.stored else _wide(x))
        for name, given, want in zip(kind.axes, tensors, wanted)
        if want
    ]


def _setup(ctx: Any, inputs: Sequence[Any], output: Any) -> None:
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*inputs[:-2])
    ctx.options = tuple(inputs[-2:])


def _backward(kind: Kind, operator: Any, ctx: Any, d_output: Any, d_final_state: Any) -> tuple[Any, ...]:
    count = len(kind.axes)
    nothing = (None,) * (count + 4)
    if d_output is None and d_final_state is None:
        return nothing
    wanted = [bool(need) for need in ctx.needs_input_grad[:count]]
    found = iter(operator(d_output, d_final_state, *ctx.saved_tensors, *ctx.options, wanted))
    return (*(next(found) if want else None for want in wanted), *nothing[count:])


def _twice(ctx: Any, *grads: Any) -> None:
    raise RuntimeError(
        "fovea: a scan has no second derivatives (a gradient of it, made with create_graph=True, was differentiated)"
    )


# Operators look up their functions by name, so that each kind has functions of its own.


def _selective_scan(*arguments: Any) -> tuple[Tensor, Tensor]:
    return _run(SCAN, arguments)


def _selective_scan_fake(*arguments: Any) -> tuple[Tensor, Tensor]:
    return _run_fake(SCAN, arguments)


def _selective_scan_backward(*arguments: Any) -> list[Tensor]:
    return _derivatives(SCAN, arguments)


def _selective_scan_backward_fake(*arguments: Any) -> list[Tensor]:
    return _derivatives_fake(SCAN, arguments)


def _selective_scan_gradient(ctx: Any, d_output: Any, d_final_state: Any) -> tuple[Any, ...]:
    return _backward(SCAN, torch.ops.fovea.selective_scan_backward, ctx, d_output, d_final_state)


def _causal_conv(*arguments: Any) -> tuple[Tensor, Tensor]:
    return _run(CONV, arguments)


def _causal_conv_fake(*arguments: Any) -> tuple[Tensor, Tensor]:
    return _run_fake(CONV, arguments)


def _causal_conv_backward(*arguments: Any) -> list[Tensor]:
    return _derivatives(CONV, arguments)


def _causal_conv_backward_fake(*arguments: Any) -> list[Tensor]:
    return _derivatives_fake(CONV, arguments)


def _causal_conv_gradient(ctx: Any, d_output: Any, d_final_state: Any) -> tuple[Any, ...]:
    return _backward(CONV, torch.ops.fovea.causal_conv_backward, ctx, d_output, d_final_state)


def _register(kind: Kind) -> None:
    name = kind.function
    arrays = ", ".join(f"Tensor{'' if n in kind.needed else '?'} {n}" for n in kind.axes)
    inputs = f"{arrays}, Tensor? starts, Tensor? present, str option, bool wants_state"
    own = globals()
    register(
        name,
        f"({inputs}) -> (Tensor output, Tensor final_state)",
        own[f"_{name}"],
        own[f"_{name}_fake"],
        own[f"_{name}_gradient"],
        _setup,
    )
    register(
        f"{name}_backward",
        f"(Tensor? d_output, Tensor? d_final_state, {inputs}, bool[] wanted) -> Tensor[]",
        own[f"_{name}_backward"],
        own[f"_{name}_backward_fake"],
        _twice,
        save_nothing,
    )


for _kind in KINDS.values():
    if not is_registered(_kind.function):
        _register(_kind)


def scan(
    kind: Kind, option: str, arrays: dict[str, Any], tokens: Tokens, wants_state: bool
) -> tuple[Tensor, Optional[Tensor]]:
    """See `fovea.selective_scan` and `fovea.causal_conv`."""
    tensors = _checked(kind, arrays)
    given = [tensors.get(name) for name in kind.axes]
    follows = torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in given)
    if not follows and are_plain(kind.function, "x", *given):
        return Ready(kind, option, tensors, tokens).forward(wants_state)
    lists = token_tensors(tokens, kind.function)
    output, state = getattr(torch.ops.fovea, kind.function)(*given, *lists, option, wants_state)
    return output, (state if wants_state else None)


def _checked(kind: Kind, arrays: dict[str, Any]) -> dict[str, Tensor]:
    """The arrays as tensors: those of tokens in the dtype of x, the others in the dtype that the engine accumulates in.
    Their gradients still flow to the originals."""
    x = TENSORS.cast(checked_tensor(kind.function, "x", arrays["x"], "as other arrays are"))
    wide = "f64" if x.dtype == torch.float64 else "f32"
    found: dict[str, Tensor] = {}
    for name, given in arrays.items():
        if given is None:
            continue
        if name in kind.stored:
            made = TENSORS.cast(checked_tensor(kind.function, name, given, "as x is one"))
            if made.dtype != x.dtype:
                raise InvalidArgument(kind.function, name, f"the dtype of x, {x.dtype}", described(given))
        else:
            if isinstance(given, Tensor) and not is_known(given):
                expected = "a tensor of PyTorch's own class"
                raise InvalidArgument(kind.function, name, expected, f"a {type(given).__name__}")
            made = TENSORS.parameter(given, wide, name, kind.function)
            if made.device.type != "cpu":
                raise InvalidArgument(kind.function, name, "a tensor on the CPU", f"one on {made.device}")
        found[name] = made
    return found


__all__ = ["scan"]
