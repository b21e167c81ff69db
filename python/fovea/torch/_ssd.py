"""The scan of Mamba-2 with the arguments and the layouts of mamba_ssm's `mamba_chunk_scan_combined`."""

from __future__ import annotations

import functools
import math
from typing import Any, Optional

import torch
from torch import Tensor
from torch.nn.functional import silu, softplus

from .._arrays import described
from .._errors import InvalidArgument
from .._recurrence import recurrence
from .._value import shown
from ..recurrences import ScalarDecay
from ._arguments import check_shape, starts_tensor
from ._kinds import is_transformed
from ._op import checked_tensor

__all__ = ["ssd"]

_NAMES = {"query": "C", "key": "B", "value": "x", "decay.log_decay": "A", "sequence_starts": "cu_seqlens"}
_NAMES["initial_state"] = "initial_states"
_DIFFERENT = "a new number at each token at which cu_seqlens begins a sequence, and at no other"
_expect = functools.partial(check_shape, "ssd")


def ssd(
    x: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    chunk_size: Optional[int] = None,
    D: Optional[Tensor] = None,
    z: Optional[Tensor] = None,
    dt_bias: Optional[Tensor] = None,
    initial_states: Optional[Tensor] = None,
    seq_idx: Optional[Tensor] = None,
    cu_seqlens: Any = None,
    dt_softplus: bool = False,
    dt_limit: tuple[float, float] = (0.0, math.inf),
    return_final_states: bool = False,
    return_varlen_states: bool = False,
    state_dtype: Optional[torch.dtype] = None,
) -> Any:
    """S = e^(ΔA) S₋ + B (Δx)ᵀ, y = SᵀC + D x, out = y · silu(z): the state-space duality of Mamba-2 (Dao and Gu 2024,
    arXiv 2405.21060). Δ = clamp(softplus(dt + dt_bias)). It is computed in f32 (f64 for f64).

    Args:
        x: [batch, seqlen, nheads, headdim].
        dt: [batch, seqlen, nheads].
        A: [nheads], at most 0.
        B, C: [batch, seqlen, ngroups, dstate]; head h has the group h // (nheads // ngroups).
        chunk_size: changes nothing.
        D: [nheads] or [nheads, headdim]; None: no skip.
        z: [batch, seqlen, nheads, headdim]; None: no gate.
        dt_bias: [nheads].
        initial_states: [batch, nheads, headdim, dstate].
        seq_idx: [batch, seqlen], whole numbers: where one differs from the one before, a new sequence begins, with a
            state of zeros. Under torch.compile and in transforms of torch.func a NaN of one sequence reaches others
            (docs/recurrence.md).
        cu_seqlens: [sequences + 1], where packed sequences begin, read for return_varlen_states alone; the batch is
            then 1. A seq_idx beside it must begin its sequences at the same tokens, and there are no initial_states.
        dt_softplus: whether softplus is applied.
        dt_limit: the limits of Δ.
        state_dtype: changes nothing: states are f32.

    Returns:
        out [batch, seqlen, nheads, headdim] in the dtype of x. With return_final_states also the states behind the last
        tokens, [batch, nheads, headdim, dstate]; with return_varlen_states also those behind each packed sequence,
        [sequences, nheads, headdim, dstate]. States are views of memory with dstate before headdim.

    >>> import torch, fovea.torch
    >>> x, dt, A, B = torch.randn(1, 5, 4, 8), torch.randn(1, 5, 4), -torch.rand(4), torch.randn(1, 5, 2, 3)
    >>> out, states = fovea.torch.ssd(x, dt, A, B, B, dt_softplus=True, return_final_states=True)
    >>> out.shape, states.shape
    (torch.Size([1, 5, 4, 8]), torch.Size([1, 4, 8, 3]))
    """
    for name, tensor, axes in (("x", x, 4), ("dt", dt, 3), ("A", A, 1), ("B", B, 4), ("C", C, 4)):
        checked_tensor("ssd", name, tensor, f"of {axes} axes")
        if tensor.dim() != axes:
            raise InvalidArgument("ssd", name, f"a tensor of {axes} axes", described(tensor))
    batch, seqlen, heads, dim = (int(n) for n in x.shape)
    _expect("dt", dt, "[batch, seqlen, nheads]", (batch, seqlen, heads))
    _expect("A", A, "[nheads]", (heads,))
    _expect("B", B, "[batch, seqlen, ngroups, dstate]", (batch, seqlen, *B.shape[2:]))
    groups = int(B.shape[2])
    if groups == 0 or heads % groups != 0:
        what = f"[batch, seqlen, ngroups, dstate] with an ngroups that divides nheads, which is {heads}"
        raise InvalidArgument("ssd", "B", what, described(B))
    _expect("C", C, "the shape of B", tuple(B.shape))
    _expect("D", D, "[nheads] or [nheads, headdim]", (heads,), (heads, dim))
    _expect("z", z, "the shape of x", (batch, seqlen, heads, dim))
    _expect("dt_bias", dt_bias, "[nheads]", (heads,))
    if not return_varlen_states:
        _expect("initial_states", initial_states, "[batch, nheads, headdim, dstate]", (batch, heads, dim, int(B.shape[3])))
    least, most = _limits(dt_limit)
    begins = None if seq_idx is None else _begins(x, seq_idx)
    if return_varlen_states:
        _check_packed(x, cu_seqlens, begins, initial_states)
    wide = torch.promote_types(x.dtype, torch.float32)
    steps = dt.to(wide)
    if dt_bias is not None:
        steps = steps + dt_bias.to(wide)
    if dt_softplus:
        steps = softplus(steps)
    if (least, most) != (0.0, math.inf) or not dt_softplus:
        steps = steps.clamp(least, most)
    gates = steps * A.to(wide)
    values = x.to(wide)
    rows = [*(tensor.to(wide) for tensor in (C, B)), values * steps[..., None], gates]
    states = None if initial_states is None else initial_states.transpose(-1, -2)
    try:
        if begins is None or return_varlen_states or seqlen == 0:
            y, state = _scan(rows, states, cu_seqlens if return_varlen_states else None)
        elif torch.compiler.is_compiling() or is_transformed():  # how many sequences there are is not known yet
            rows[3] = gates.masked_fill(begins[..., None], -math.inf)
            y, state = _scan(rows, states, None)
        else:
            y, state = _scan_packed(rows, states, begins)
    except InvalidArgument as error:
        name = _NAMES.get(error.argument, error.argument)
        raise InvalidArgument("ssd", name, error.expected, error.got) from None
    if D is not None:
        y = y + values * (D if D.dim() == 2 else D[:, None]).to(wide)
    if z is not None:
        y = y * silu(z.to(wide))
    y, state = y.to(x.dtype), state.transpose(-1, -2)
    states = [*([state[-1:] if return_varlen_states else state] if return_final_states else [])]
    states += [state] if return_varlen_states else []
    return (y, *states) if states else y


def _scan(rows: list[Tensor], initial_states: Optional[Tensor], starts: Any) -> Any:
    """The recurrence of rows [batch, seqlen, heads, ...] of C, B, Δx and gates, and its states."""
    c, b, values, gates = (tensor.transpose(1, 2) for tensor in rows)
    decay = ScalarDecay(gates)
    more = {"initial_state": initial_states, "sequence_starts": starts, "return_state": True}
    y, state = recurrence(c, b, values, decay=decay, scale=1.0, **more)
    return y.transpose(1, 2), state


def _scan_packed(rows: list[Tensor], initial_states: Optional[Tensor], begins: Tensor) -> Any:
    """The same with sequences of their own: a gate of minus infinity would let a NaN of a state through, as 0 · NaN."""
    batch, seqlen = begins.shape
    begins = begins.clone()
    begins[:, :1] = True
    starts = torch.nn.functional.pad(begins.flatten().nonzero()[:, 0], (0, 1), value=batch * seqlen)
    firsts = torch.searchsorted(starts, torch.arange(batch) * seqlen)  # of each entry, among all sequences
    lasts = torch.searchsorted(starts, torch.arange(1, batch + 1) * seqlen) - 1
    if initial_states is not None:
        zeros = initial_states.new_zeros(len(starts) - 1, *initial_states.shape[1:])
        initial_states = zeros.index_copy(0, firsts, initial_states)
    y, state = _scan([tensor.flatten(0, 1)[None] for tensor in rows], initial_states, starts)
    return y[0].unflatten(0, (batch, seqlen)), state[lasts]


def _limits(x: Any) -> tuple[float, float]:
    try:
        least, most = (float(limit) for limit in x)
    except (TypeError, ValueError):
        raise InvalidArgument("ssd", "dt_limit", "two numbers", shown(x)) from None
    if not least <= most:
        raise InvalidArgument("ssd", "dt_limit", "two numbers, the smaller one first", shown(x))
    return least, most


def _begins(x: Tensor, seq_idx: Any) -> Tensor:
    """[batch, seqlen]: whether a sequence other than the first begins at a token. The first reads the initial state."""
    if not isinstance(seq_idx, Tensor) or seq_idx.shape != x.shape[:2]:
        raise InvalidArgument("ssd", "seq_idx", f"[batch, seqlen] {[int(n) for n in x.shape[:2]]}", described(seq_idx))
    return torch.nn.functional.pad(seq_idx[:, 1:] != seq_idx[:, :-1], (1, 0))


def _check_packed(x: Tensor, cu_seqlens: Any, begins: Optional[Tensor], initial_states: Any) -> None:
    """The arguments beside return_varlen_states=True."""
    if cu_seqlens is None:
        raise InvalidArgument("ssd", "cu_seqlens", "numbers beside return_varlen_states=True", "None")
    if initial_states is not None:
        raise InvalidArgument(
            "ssd", "initial_states", "None beside return_varlen_states=True", described(initial_states)
        )
    if x.shape[0] != 1:
        raise InvalidArgument("ssd", "x", "a batch of 1 beside return_varlen_states=True", described(x))
    starts = starts_tensor("ssd", cu_seqlens)
    if begins is None:
        return
    tokens = torch.arange(x.shape[1])
    ends_before = torch.bucketize(tokens, starts, right=True)  # how many of cu_seqlens lie at a token or before it
    same = (begins[0, 1:] == (ends_before[1:] != ends_before[:-1])).all()
    if torch.compiler.is_compiling():  # numbers are not known yet
        torch._assert_async(same, _DIFFERENT)
    elif not same:
        found = begins[0].nonzero()[:, 0].tolist()
        raise InvalidArgument("ssd", "seq_idx", _DIFFERENT, f"new sequences at {found} beside {starts.tolist()}")
