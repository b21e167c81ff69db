"""The scan of Mamba-1 and the short convolution with the arguments and the layouts of mamba_ssm's
`selective_scan_fn` and `selective_state_update`, and of the package causal-conv1d."""

from __future__ import annotations

from typing import Any, Optional

import torch
from torch import Tensor

from .. import _scans
from .._arrays import described
from .._errors import InvalidArgument
from .._value import shown
from ._arguments import check_shape
from ._op import checked_tensor

__all__ = ["causal_conv1d", "causal_conv1d_update", "selective_scan", "selective_state_update"]

# The names of a function's arguments, by those of the function of `fovea` that it calls.
_NAMES = {
    "selective_scan": {"x": "u", "a": "A", "b": "B", "c": "C", "d": "D", "step_size": "delta_softplus"},
    "selective_state_update": {
        **{"delta": "dt", "a": "A", "b": "B", "c": "C", "d": "D", "delta_bias": "dt_bias"},
        **{"step_size": "dt_softplus", "initial_state": "state"},
    },
    "causal_conv1d": {"initial_state": "initial_states"},
    "causal_conv1d_update": {"initial_state": "conv_state"},
}


def _renamed(function: str, error: InvalidArgument) -> InvalidArgument:
    name = _NAMES[function].get(error.argument, error.argument)
    return InvalidArgument(function, name, error.expected, error.got)


def _tensor(function: str, name: str, x: Any, *axes: int) -> Tensor:
    x = checked_tensor(function, name, x, "as other arguments are")
    if x.dim() not in axes:
        raise InvalidArgument(function, name, f"a tensor of {' or '.join(map(str, axes))} axes", described(x))
    return x


def selective_scan(
    u: Tensor,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Optional[Tensor] = None,
    z: Optional[Tensor] = None,
    delta_bias: Optional[Tensor] = None,
    delta_softplus: bool = False,
    return_last_state: bool = False,
) -> Any:
    """h = e^(Δ A) h₋ + Δ B u, y = C h + D u, out = y · silu(z): Mamba (Gu and Dao 2023, arXiv 2312.00752). Δ is
    delta + delta_bias, or softplus of it. It is computed in f32 (f64 for f64).

    Args:
        u, delta: [batch, dim, length].
        A: [dim, dstate], at most 0.
        B, C: [batch, dstate, length] or [batch, groups, dstate, length]; [dim, dstate] where they do not depend on the
            token.
        D: [dim]; None: no skip.
        z: [batch, dim, length]; None: no gate.
        delta_bias: [dim].
        delta_softplus: whether softplus is applied. Without it delta + delta_bias is at least 0.

    Returns:
        out [batch, dim, length] in the dtype of u. With return_last_state also the state behind the last token,
        [batch, dim, dstate].

    Raises:
        InvalidArgument: for shapes, dtypes and numbers that do not fit.

    >>> import torch, fovea.torch
    >>> u, A, B = torch.randn(2, 4, 5), -torch.rand(4, 3), torch.randn(2, 3, 5)
    >>> out, state = fovea.torch.selective_scan(u, u, A, B, B, delta_softplus=True, return_last_state=True)
    >>> out.shape, state.shape
    (torch.Size([2, 4, 5]), torch.Size([2, 4, 3]))
    """
    function = "selective_scan"
    _tensor(function, "u", u, 3)
    _tensor(function, "delta", delta, 3)
    _tensor(function, "A", A, 2)
    _tensor(function, "B", B, 2, 3, 4)
    _tensor(function, "C", C, 2, 3, 4)
    batch, dim, length = u.shape
    check_shape(function, "delta", delta, "the shape of u", (batch, dim, length))
    check_shape(function, "A", A, "[dim, dstate]", (dim, A.shape[1]))
    check_shape(function, "D", D, "[dim]", (dim,))
    check_shape(function, "z", z, "the shape of u", (batch, dim, length))
    check_shape(function, "delta_bias", delta_bias, "[dim]", (dim,))
    for name, given in (("B", B), ("C", C)):
        shape = ((dim, A.shape[1]), (batch, A.shape[1], length), (batch, *given.shape[1:2], A.shape[1], length))
        axes = ("[dim, dstate]", "[batch, dstate, length]", "[batch, groups, dstate, length]")
        check_shape(function, name, given, axes[given.dim() - 2], shape[given.dim() - 2])
        _check_groups(function, name, given, 4, dim)
    if B.dim() == 2 or C.dim() == 2:
        B, C = (_of_each_channel(x, u) for x in (B, C))
    _same_groups(function, B, C, 4)
    arguments = {"u": u, "delta": delta, "A": A, "B": B, "C": C, "D": D, "z": z, "delta_bias": delta_bias}
    out, state = _scanned(function, arguments, delta_softplus, None)
    return (out, state) if return_last_state else out


def _check_groups(function: str, name: str, x: Tensor, axes: int, dim: int) -> None:
    """Throws unless the groups of B or C, the second of so many axes, share the channels out evenly."""
    groups = x.shape[1] if x.dim() == axes else 1
    if groups == 0 or dim % groups:
        raise InvalidArgument(function, name, f"groups in a number that divides the {int(dim)} channels", described(x))


def _same_groups(function: str, B: Tensor, C: Tensor, axes: int) -> None:
    b, c = (int(x.shape[1]) if x.dim() == axes else 1 for x in (B, C))
    if b != c:
        raise InvalidArgument(function, "C", f"as many groups as B has, {b}", described(C))


def _of_each_channel(x: Tensor, u: Tensor) -> Tensor:
    """B or C with each channel as a group of its own, because numbers of [dim, dstate] belong to a channel."""
    if x.dim() == 2:
        return x[None, :, :, None].expand(u.shape[0], -1, -1, u.shape[2])
    x = x[:, None] if x.dim() == 3 else x
    return x.repeat_interleave(u.shape[1] // x.shape[1], 1)


def _scanned(
    function: str, arguments: dict[str, Optional[Tensor]], delta_softplus: bool, initial_state: Optional[Tensor]
) -> tuple[Tensor, Tensor]:
    """By the engine, whose channels are innermost."""
    u, B = arguments["u"], arguments["B"]
    assert u is not None and B is not None
    dtypes = [x.dtype for name, x in arguments.items() if name in ("u", "delta", "B", "C", "z") and x is not None]
    common = dtypes[0]
    for dtype in dtypes[1:]:
        common = torch.promote_types(common, dtype)

    def rows(name: str) -> Optional[Tensor]:
        x = arguments[name]
        return x if x is None else x.to(common).transpose(1, 2)

    def groups(name: str) -> Tensor:
        x = arguments[name]
        assert x is not None
        return (x[:, None] if x.dim() == 3 else x).to(common).permute(0, 3, 1, 2)

    try:
        y, state = _scans.selective_scan(
            rows("u"),
            rows("delta"),
            arguments["A"],
            groups("B"),
            groups("C"),
            d=arguments["D"],
            z=rows("z"),
            delta_bias=arguments["delta_bias"],
            step_size="softplus" if delta_softplus else "as_given",
            initial_state=initial_state,
            return_state=True,
        )
    except InvalidArgument as error:
        raise _renamed(function, error) from None
    return y.transpose(1, 2).to(u.dtype), state


def selective_state_update(
    state: Tensor,
    x: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Optional[Tensor] = None,
    z: Optional[Tensor] = None,
    dt_bias: Optional[Tensor] = None,
    dt_softplus: bool = False,
) -> Tensor:
    """One token of `selective_scan`, which changes `state`.

    Args:
        state: [batch, dim, dstate].
        x, dt: [batch, dim].
        A: [dim, dstate], at most 0.
        B, C: [batch, dstate] or [batch, groups, dstate].
        D, dt_bias: [dim].
        z: [batch, dim].

    Returns:
        out [batch, dim] in the dtype of x.

    >>> import torch, fovea.torch
    >>> state, x, A, B = torch.zeros(2, 4, 3), torch.randn(2, 4), -torch.rand(4, 3), torch.randn(2, 3)
    >>> fovea.torch.selective_state_update(state, x, x, A, B, B, dt_softplus=True).shape
    torch.Size([2, 4])
    """
    function = "selective_state_update"
    _tensor(function, "state", state, 3)
    for name, given in (("x", x), ("dt", dt), ("A", A)):
        _tensor(function, name, given, 2)
    for name, given in (("B", B), ("C", C)):
        _tensor(function, name, given, 2, 3)
    batch, (dim, dstate) = x.shape[0], A.shape
    for name, given in (("x", x), ("dt", dt), ("z", z)):
        check_shape(function, name, given, "[batch, dim]", (batch, dim))
    check_shape(function, "state", state, "[batch, dim, dstate]", (batch, dim, dstate))
    for name, given in (("D", D), ("dt_bias", dt_bias)):
        check_shape(function, name, given, "[dim]", (dim,))
    for name, given in (("B", B), ("C", C)):
        axes = "[batch, dstate]" if given.dim() == 2 else "[batch, groups, dstate]"
        check_shape(function, name, given, axes, (batch, *given.shape[1:-1], dstate))
        _check_groups(function, name, given, 3, dim)
    _same_groups(function, B, C, 3)
    one = {"u": x, "delta": dt, "B": B, "C": C, "z": z}
    arguments = {name: given if given is None else given[..., None] for name, given in one.items()}
    # Changed below, while a gradient may need it.
    before = state.to(torch.promote_types(state.dtype, torch.float32), copy=True)
    out, after = _scanned(function, {**arguments, "A": A, "D": D, "delta_bias": dt_bias}, dt_softplus, before)
    state.copy_(after)
    return out[..., 0]


def _activation(function: str, activation: Optional[str]) -> Optional[str]:
    if activation is None:
        return None
    if not isinstance(activation, str) or activation not in ("silu", "swish"):
        raise InvalidArgument(function, "activation", "None, 'silu' or 'swish'", shown(activation))
    return "silu"


def causal_conv1d(
    x: Tensor,
    weight: Tensor,
    bias: Optional[Tensor] = None,
    seq_idx: Optional[Tensor] = None,
    initial_states: Optional[Tensor] = None,
    return_final_states: bool = False,
    *,
    activation: Optional[str] = None,
) -> Any:
    """Each channel by itself over a token and the few before it, out = activation(bias + Σ_j weight[:, j] x[t - width + 1
    + j]), as `causal_conv1d_fn` of the package causal-conv1d.

    Args:
        x: [batch, dim, length].
        weight: [dim, width], width from 2 to 8. The last tap is the token itself.
        bias: [dim].
        seq_idx: [batch, length], whole numbers: where one differs from the one before, a new sequence begins, with zeros
            before it. Not with states.
        initial_states: [batch, dim, width - 1], the inputs before, the oldest first.
        activation: None, "silu" or "swish", which is the same. By name alone: in causal_conv1d_fn it is the eighth.

    Returns:
        out in the shape and dtype of x. With return_final_states also the last width - 1 inputs, [batch, dim, width - 1],
        in the dtype of x.

    Raises:
        InvalidArgument: for shapes and dtypes that do not fit.

    >>> import torch, fovea.torch
    >>> fovea.torch.causal_conv1d(torch.tensor([[[1.0, 2.0, 3.0]]]), torch.tensor([[10.0, 1.0]]))
    tensor([[[ 1., 12., 23.]]])
    """
    return _convolved("causal_conv1d", x, weight, bias, seq_idx, initial_states, return_final_states, activation)


def _convolved(
    function: str,
    x: Tensor,
    weight: Tensor,
    bias: Optional[Tensor],
    seq_idx: Optional[Tensor],
    initial_states: Optional[Tensor],
    return_final_states: bool,
    activation: Optional[str],
) -> Any:
    _tensor(function, "x", x, 3)
    _tensor(function, "weight", weight, 2)
    batch, dim, _ = x.shape
    check_shape(function, "weight", weight, "[dim, width]", (dim, weight.shape[1]))
    check_shape(function, "bias", bias, "[dim]", (dim,))
    before = (batch, dim, max(weight.shape[1] - 1, 0))
    check_shape(function, "initial_states", initial_states, "[batch, dim, width - 1]", before)
    named = _activation(function, activation)
    starts = None
    rows = x.transpose(1, 2)
    if seq_idx is not None:
        if initial_states is not None or return_final_states:
            raise InvalidArgument(function, "seq_idx", "None beside states", described(seq_idx))
        starts = _starts(x, seq_idx)
        rows = rows.reshape(1, -1, x.shape[1])
    try:
        y, state = _scans.causal_conv(
            rows,
            weight,
            bias,
            activation=named,
            initial_state=None if initial_states is None else initial_states.transpose(1, 2),
            sequence_starts=starts,
            return_state=True,
        )
    except InvalidArgument as error:
        raise _renamed(function, error) from None
    out = y.reshape(x.shape[0], x.shape[2], x.shape[1]).transpose(1, 2)
    return (out, state.transpose(1, 2).to(x.dtype)) if return_final_states else out


def _starts(x: Tensor, seq_idx: Any) -> Tensor:
    """Where sequences begin in the batch as one row of tokens, and its length."""
    if not isinstance(seq_idx, Tensor) or seq_idx.shape != (x.shape[0], x.shape[2]):
        expected = f"[batch, length] {[int(x.shape[0]), int(x.shape[2])]}"
        raise InvalidArgument("causal_conv1d", "seq_idx", expected, described(seq_idx))
    begins = torch.ones_like(seq_idx, dtype=torch.bool)
    begins[:, 1:] = seq_idx[:, 1:] != seq_idx[:, :-1]
    return torch.cat([begins.flatten().nonzero()[:, 0], torch.tensor([begins.numel()])])


def causal_conv1d_update(
    x: Tensor,
    conv_state: Tensor,
    weight: Tensor,
    bias: Optional[Tensor] = None,
    activation: Optional[str] = None,
) -> Tensor:
    """The next tokens of `causal_conv1d`, which changes `conv_state`.

    Args:
        x: [batch, dim] or [batch, dim, length].
        conv_state: [batch, dim, at least width - 1], the inputs before, the oldest first. It becomes the last inputs.
        weight, bias, activation: as in `causal_conv1d`.

    Returns:
        out in the shape and dtype of x.

    >>> import torch, fovea.torch
    >>> state = torch.tensor([[[9.0]]])
    >>> fovea.torch.causal_conv1d_update(torch.tensor([[1.0]]), state, torch.tensor([[10.0, 1.0]])), state
    (tensor([[91.]]), tensor([[[1.]]]))
    """
    function = "causal_conv1d_update"
    _tensor(function, "x", x, 2, 3)
    _tensor(function, "conv_state", conv_state, 3)
    _tensor(function, "weight", weight, 2)
    width, kept = weight.shape[1], conv_state.shape[2]
    tokens = x[..., None] if x.dim() == 2 else x
    if kept < width - 1 or conv_state.shape[:2] != tokens.shape[:2]:
        expected = f"[{int(tokens.shape[0])}, {int(tokens.shape[1])}, at least {width - 1}]"
        raise InvalidArgument(function, "conv_state", expected, described(conv_state))
    before = conv_state[..., kept - width + 1 :].clone()  # changed below, while a gradient may need it
    out = _convolved(function, tokens, weight, bias, None, before, False, activation)
    conv_state.copy_(torch.cat([conv_state, tokens.to(conv_state.dtype)], -1)[..., -kept:])
    return out[..., 0] if x.dim() == 2 else out
