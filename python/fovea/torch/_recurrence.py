"""`fovea.recurrence` on tensors: the operators fovea::recur and fovea::recur_backward, and the choice of the code path.

Without gradients the engine is called directly, with gradients inside of an autograd function. Under torch.compile,
torch.export, functorch and dispatch modes a call is the operator, which costs more for each call but is visible to
them.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Optional, Sequence

import torch
from torch import Tensor

from .._arrays import described
from .._errors import InvalidArgument
from .._recurrence_engine import FUNCTION, NAMES, STORED, Ready, Structure, Tokens, starts_of
from .._value import is_array
from . import _report
from ._arguments import starts_tensor
from ._batches import is_legacy, legacy_rule, vmap_rule
from ._kinds import is_known, is_transformed
from ._op import are_plain, checked_tensor
from ._registry import is_registered, register, save_nothing
from ._tensors import TENSORS

_ARRAYS = ", ".join(f"{'Tensor' if name in ('key', 'value') else 'Tensor?'} {name}" for name in NAMES)
_INPUTS = f"{_ARRAYS}, Tensor? starts, Tensor? present, str parts, float epsilon, float? scale, bool wants_state"
_RECUR = f"({_INPUTS}) -> (Tensor output, Tensor final_state, Tensor denominator)"
# The gradients of the arrays, as far as `wanted`, in their order.
_LOSSES = "Tensor? d_output, Tensor? d_final_state, Tensor? output, Tensor? denominator"
_RECUR_BACKWARD = f"({_LOSSES}, {_INPUTS}, bool[] wanted) -> Tensor[]"


@dataclasses.dataclass(frozen=True)
class Form:
    """The arguments of fovea::recur that are not tensors. No tuple: a rule for batches would look for axes in it."""

    parts: str
    epsilon: float
    scale: Optional[float]
    wants_state: bool

    @staticmethod
    def of(structure: Structure, wants_state: bool) -> "Form":
        return Form(" ".join(structure.parts), structure.epsilon, structure.scale, wants_state)

    @property
    def arguments(self) -> tuple[Any, ...]:
        return self.parts, self.epsilon, self.scale, self.wants_state

    @property
    def structure(self) -> Structure:
        return Structure(tuple(self.parts.split(" ")), self.epsilon, self.scale)

    @property
    def sums_keys(self) -> bool:
        return self.parts.endswith(" sum")


_COUNT = len(NAMES)
_NO_SECOND = (
    "fovea: a recurrence has no second derivatives (a gradient of it, made with create_graph=True, was differentiated)"
)


def _ready(tensors: Sequence[Optional[Tensor]], form: Form, function: str = FUNCTION) -> Ready:
    """tensors: the arrays in the order of NAMES, starts and present."""
    arrays = dict(zip(NAMES, tensors))
    return Ready(form.structure, arrays, Tokens(*tensors[_COUNT:]), function)


def _compute(tensors: Sequence[Optional[Tensor]], form: Form, saves: bool) -> tuple[Tensor, ...]:
    """The output, the final state, the denominators and the saved states; empty, where there are none."""
    outputs = _ready(tensors, form).forward(form.wants_state, denominator=form.sums_keys, saves=saves)
    nothing = tensors[1].new_empty  # type: ignore[union-attr]
    names = ("output", "final_state", "denominator", "saved_states")
    return tuple(outputs[name] if name in outputs else nothing(0) for name in names)


def _recur(*arguments: Any) -> tuple[Tensor, ...]:
    """A graph saves no states: their number is the engine's, which a graph of any length cannot ask."""
    _report.ran_in_graph()
    return _compute(arguments[: _COUNT + 2], Form(*arguments[_COUNT + 2 :]), False)[:3]


def _like_output(query: Optional[Tensor], key: Tensor, value: Tensor) -> Tensor:
    """The tensor that has as many heads as the output, whose order of axes the output has."""
    return value if query is None or query.shape[1] <= value.shape[1] else query


def _recur_fake(*arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    query, key, value = arguments[:3]
    starts, _, *rest = arguments[_COUNT:]
    form = Form(*rest)
    wide = torch.float64 if key.dtype == torch.float64 else torch.float32
    output, state, denominator = (key.new_empty(0) for _ in range(3))
    if query is not None:
        output = TENSORS.following(_like_output(query, key, value), value.shape[3])
        if form.sums_keys:
            denominator = key.new_empty(output.shape[:3], dtype=wide)
    if form.wants_state:
        sequences = key.shape[0] if starts is None else starts.shape[0] - 1
        columns = value.shape[3] + form.sums_keys
        state = key.new_empty((sequences, value.shape[1], key.shape[3], columns), dtype=wide)
    return output, state, denominator


def _derivatives(
    losses: Sequence[Optional[Tensor]], tensors: Sequence[Optional[Tensor]], form: Form, wanted: Sequence[bool]
) -> list[Tensor]:
    """losses: d_output, d_final_state, for `KeySum` the output and the denominators, and the saved states."""
    d_output, d_final_state, output, denominator, saved_states = losses
    ready = _ready(tensors, form)
    if not form.wants_state:
        d_final_state = None
    if tensors[0] is None:
        d_output = None
    names = [name for name, want in zip(NAMES, wanted) if want]
    loss = ready.loss(d_output, d_final_state)
    if not loss:
        return [torch.zeros_like(ready.inputs[name]) for name in names]
    if form.sums_keys and d_output is not None:
        loss.update(output=TENSORS.operand(output), denominator=denominator)
    if saved_states is not None:
        # What a hook for saved tensors brings back may lie at an address that the engine refuses.
        loss["saved_states"] = saved_states.clone() if saved_states.data_ptr() % 64 else saved_states
    found = ready.backward(loss, names)
    return [found[name] for name in names]


def _recur_backward(*arguments: Any) -> list[Tensor]:
    losses, tensors, rest = arguments[:4], arguments[4 : _COUNT + 6], arguments[_COUNT + 6 :]
    return _derivatives((*losses, None), tensors, Form(*rest[:-1]), rest[-1])


def _recur_backward_fake(*arguments: Any) -> list[Tensor]:
    tensors, wanted = arguments[4 : _COUNT + 4], arguments[-1]
    wide = torch.float64 if tensors[1].dtype == torch.float64 else torch.float32
    return [
        TENSORS.like(x) if name in STORED else x.new_empty(x.shape, dtype=wide)
        for name, x, want in zip(NAMES, tensors, wanted)
        if want
    ]


def _save(ctx: Any, tensors: Sequence[Any], form: Form, outputs: tuple[Tensor, ...], *more: Any) -> None:
    ctx.set_materialize_grads(False)
    ctx.form = form
    output, _, denominator = outputs
    sums = form.sums_keys and tensors[0] is not None
    ctx.save_for_backward(*tensors, *((output, denominator) if sums else (None, None)), *more)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    _save(ctx, inputs[: _COUNT + 2], Form(*inputs[_COUNT + 2 :]), output)


def _backward(ctx: Any, d_output: Optional[Tensor], d_final_state: Optional[Tensor], _: Any) -> tuple[Any, ...]:
    *tensors, output, denominator = ctx.saved_tensors
    nothing = (None,) * (_COUNT + 6)
    if d_output is None and d_final_state is None:
        return nothing
    wanted = [bool(need) for need in ctx.needs_input_grad[:_COUNT]]
    losses = (d_output, d_final_state, output, denominator)
    found = iter(torch.ops.fovea.recur_backward(*losses, *tensors, *ctx.form.arguments, wanted))
    return (*(next(found) if want else None for want in wanted), *nothing[_COUNT:])


def _twice(ctx: Any, *grads: Any) -> None:
    raise RuntimeError(_NO_SECOND)


if not is_registered("recur"):
    register("recur", _RECUR, _recur, _recur_fake, _backward, _setup_context)
    register("recur_backward", _RECUR_BACKWARD, _recur_backward, _recur_backward_fake, _twice, save_nothing)


class _Recurrence(torch.autograd.Function):
    """A call with gradients, also inside the transforms of torch.func, which PyTorch's registered gradients do not
    support."""

    @staticmethod
    def forward(form: Form, saves: bool, *tensors: Any) -> tuple[Tensor, ...]:
        if is_transformed():
            return (*torch.ops.fovea.recur(*tensors, *form.arguments), tensors[1].new_empty(0))
        return _compute(tensors, form, saves)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        form, _, *tensors = inputs
        *outputs, saved_states = output
        _save(ctx, tensors, form, tuple(outputs), saved_states if saved_states.numel() else None)

    @staticmethod
    def backward(ctx: Any, d_output: Any, d_final_state: Any, *_: Any) -> tuple[Any, ...]:
        *tensors, output, denominator, saved_states = ctx.saved_tensors
        nothing = (None,) * (_COUNT + 4)
        if d_output is None and d_final_state is None:
            return nothing
        wanted = tuple(bool(need) for need in ctx.needs_input_grad[2 : _COUNT + 2])
        given = (d_output, d_final_state, output, denominator, saved_states, *tensors)

        def call(*tensors: Any) -> Any:
            return _Gradients.apply(ctx.form, wanted, *tensors)

        # PyTorch's older vmap drops what a Function of a whole batch records, so each entry gets its own Function.
        call = legacy_rule(call) if any(map(is_legacy, given)) else call
        found = iter(call(*given))
        return (None, None, *(next(found) if want else None for want in wanted), None, None)

    @staticmethod
    def vmap(info: Any, in_dims: Any, *arguments: Any) -> Any:
        return vmap_rule(_Recurrence.apply)(info, in_dims, *arguments)


class _Gradients(torch.autograd.Function):
    """The gradients, which refuse a second derivative."""

    @staticmethod
    def forward(form: Form, wanted: tuple[bool, ...], *tensors: Any) -> tuple[Tensor, ...]:
        if is_transformed():
            without = (*tensors[:4], *tensors[5:])
            return tuple(torch.ops.fovea.recur_backward(*without, *form.arguments, list(wanted)))
        return tuple(_derivatives(tensors[:5], tensors[5:], form, wanted))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *losses: Any) -> None:
        raise RuntimeError(_NO_SECOND)

    @staticmethod
    def vmap(info: Any, in_dims: Any, *arguments: Any) -> Any:
        return vmap_rule(_Gradients.apply)(info, in_dims, *arguments)


def recurrence(
    structure: Structure,
    arrays: dict[str, Any],
    tokens: Tokens,
    wants_state: bool,
    out: Optional[Tensor] = None,
    final_state: Optional[Tensor] = None,
) -> tuple[Optional[Tensor], Optional[Tensor]]:
    """See `fovea.recurrence`."""
    tensors = _checked(arrays)
    form = Form.of(structure, wants_state)
    given = [tensors.get(name) for name in NAMES]
    follows = torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in given)
    if are_plain(FUNCTION, "key", *given):
        if not follows:
            return _in_place(structure, tensors, tokens, wants_state, out, final_state)
        saves, call = True, _Recurrence.apply
    else:
        # The entries of a batch would save states of their own, which the batch would copy to stack them.
        saves, call = False, _Recurrence.apply if is_transformed() else None
    for name, x in (("out", out), ("final_state", final_state)):
        if x is not None:
            raise InvalidArgument(FUNCTION, name, "None where gradients are wanted, and in a graph", described(x))
    given += token_tensors(tokens, FUNCTION)
    outputs = torch.ops.fovea.recur(*given, *form.arguments) if call is None else call(form, saves, *given)
    return (None if tensors.get("query") is None else outputs[0]), (outputs[1] if wants_state else None)


def token_tensors(tokens: Tokens, function: str) -> list[Optional[Tensor]]:
    """Starts and present for an operator. A graph does not know the values of arrays, which the engine checks."""
    starts, present = tokens.starts, tokens.present
    if is_array(starts):
        starts = starts_tensor(function, starts, "sequence_starts")
    elif starts is not None:
        starts = torch.tensor(starts_of(starts, function), dtype=torch.int64)
    if present is not None and not isinstance(present, Tensor):
        present = TENSORS.truth_bytes(present, f"{function}.present")
    return [starts, present]


def _in_place(
    structure: Structure,
    tensors: dict[str, Tensor],
    tokens: Tokens,
    wants_state: bool,
    out: Optional[Tensor],
    final_state: Optional[Tensor],
) -> tuple[Optional[Tensor], Optional[Tensor]]:
    """By the engine, into the caller's tensors."""
    for name, x in (("out", out), ("final_state", final_state)):
        if x is not None and (not isinstance(x, Tensor) or TENSORS.wants_gradient(x)):
            raise InvalidArgument(FUNCTION, name, "a tensor that wants no gradient", described(x))
    into = [x if x is None else x.detach() for x in (out, final_state)]
    outputs = Ready(structure, tensors, tokens).forward(wants_state, out=into[0], final_state=into[1])
    output, state = outputs.get("output"), outputs.get("final_state")
    return (output if out is None else out), (state if final_state is None else final_state)


def _checked(arrays: dict[str, Any]) -> dict[str, Tensor]:
    """The arrays as tensors: those of tokens in one dtype, the others in the dtype that the engine accumulates in.
    Their gradients still flow to the originals."""
    found: dict[str, Tensor] = {}
    key = checked_tensor(FUNCTION, "key", arrays["key"], "as other arrays are")
    key = TENSORS.cast(key)
    wide = "f64" if key.dtype == torch.float64 else "f32"
    for name, x in arrays.items():
        if x is None:
            continue
        if name in STORED:
            x = TENSORS.cast(checked_tensor(FUNCTION, NAMES[name], x, "as the key is one"))
            if x.dtype != key.dtype:
                raise InvalidArgument(FUNCTION, NAMES[name], f"the dtype of the key, {key.dtype}", described(x))
        else:
            if isinstance(x, Tensor) and not is_known(x):
                raise InvalidArgument(
                    FUNCTION, NAMES[name], "a tensor of PyTorch's own class", f"a {type(x).__name__}"
                )
            x = TENSORS.parameter(x, wide, NAMES[name], FUNCTION)
            if x.device.type != "cpu":
                raise InvalidArgument(FUNCTION, NAMES[name], "a tensor on the CPU", f"one on {x.device}")
        found[name] = x
    return found


__all__ = ["Form", "recurrence", "token_tensors"]
