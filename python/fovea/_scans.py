"""The scan of Mamba-1 and the short causal convolution in front of recurrences, and their gradients."""

from __future__ import annotations

from typing import Any, Optional

from ._arrays import library_of
from ._engine import seen
from ._errors import InvalidArgument, named
from ._recurrence_engine import Tokens
from ._scans_engine import CONV, SCAN, Kind, checked, gradients
from ._value import shown, truth

__all__ = ["causal_conv", "causal_conv_gradients", "selective_scan", "selective_scan_gradients"]


def selective_scan(
    x: Any,
    delta: Any,
    a: Any,
    b: Any,
    c: Any,
    *,
    d: Any = None,
    z: Any = None,
    delta_bias: Any = None,
    step_size: str = "softplus",
    initial_state: Any = None,
    sequence_starts: Any = None,
    present: Any = None,
    return_state: bool = False,
) -> Any:
    """The scan of Mamba-1 (Gu and Dao 2023, arXiv 2312.00752, section 3.2). Each element of a state has a decay of its
    own. With Δ = softplus(delta + delta_bias):

        h[t, c, n] = exp(Δ[t, c] a[c, n]) h[t-1, c, n] + Δ[t, c] b[t, n] x[t, c]
        y[t, c]    = Σ_n c[t, n] h[t, c, n] + d[c] x[t, c],   times z·σ(z) where there is a gate z

    `fovea.torch.selective_scan` has mamba's order of axes.

    Args:
        x, delta: [batch, length, channels] of f32, f64, bf16 or f16.
        a: [channels, state_dim], at most 0, f32 (f64 for f64) or what converts to it, as are d and delta_bias.
        b, c: [batch, length, groups, state_dim]. Channel i has the group i // (channels // groups).
        d: [channels]; None: no skip.
        z: [batch, length, channels]; None: no gate.
        delta_bias: [channels]; None: zeros.
        step_size: "softplus", or "as_given" where Δ is delta + delta_bias, at least 0.
        initial_state: [sequences, channels, state_dim]; None: zeros.
        sequence_starts, present, return_state: as in `recurrence`.

    Returns:
        y in the shape and dtype of x; with return_state the tuple (y, final state).

    Raises:
        InvalidArgument: for shapes, dtypes and numbers that do not fit.

    >>> import numpy as np
    >>> x, a, b = np.ones((1, 5, 4)), -np.ones((4, 3)), np.ones((1, 5, 1, 3))
    >>> y, state = fovea.selective_scan(x, x, a, b, b, return_state=True)
    >>> y.shape, state.shape
    ((1, 5, 4), (1, 4, 3))
    """
    given = _seen(x=x, delta=delta, a=a, b=b, c=c, d=d, z=z, delta_bias=delta_bias, initial_state=initial_state)
    tokens = Tokens(sequence_starts, present)
    return _call(SCAN, _one_of(SCAN, "step_size", step_size, "softplus", "as_given"), given, tokens, return_state)


def causal_conv(
    x: Any,
    weight: Any,
    bias: Any = None,
    *,
    activation: Optional[str] = None,
    initial_state: Any = None,
    sequence_starts: Any = None,
    present: Any = None,
    return_state: bool = False,
) -> Any:
    """Each channel by itself over a token and the few before it, as in front of Mamba's scan:
    y[t, c] = activation(bias[c] + Σ_j weight[c, j] x[t - width + 1 + j, c]).

    `fovea.torch.causal_conv1d` has the order of axes of the package causal-conv1d.

    Args:
        x: [batch, length, channels] of f32, f64, bf16 or f16.
        weight: [channels, width], width from 2 to 8, f32 (f64 for f64) or what converts to it, as is bias. The last
            tap is the token itself.
        bias: [channels]; None: zeros.
        activation: None or "silu".
        initial_state: [sequences, width - 1, channels], the inputs before, the oldest first; None: zeros.
        sequence_starts, present, return_state: as in `recurrence`.

    Returns:
        y in the shape and dtype of x; with return_state the tuple (y, final state).

    Raises:
        InvalidArgument: for shapes and dtypes that do not fit.

    >>> import numpy as np
    >>> print(fovea.causal_conv(np.array([[[1.0], [2.0], [3.0]]]), np.array([[10.0, 1.0]])).ravel())
    [ 1. 12. 23.]
    """
    given = _seen(x=x, weight=weight, bias=bias, initial_state=initial_state)
    return _call(CONV, _activation(activation), given, Tokens(sequence_starts, present), return_state)


@named("selective_scan_gradients", "selective_scan")
def selective_scan_gradients(
    x: Any,
    delta: Any,
    a: Any,
    b: Any,
    c: Any,
    d_output: Any,
    *,
    d_final_state: Any = None,
    d: Any = None,
    z: Any = None,
    delta_bias: Any = None,
    step_size: str = "softplus",
    initial_state: Any = None,
    sequence_starts: Any = None,
    present: Any = None,
) -> dict[str, Any]:
    """Derivatives of a loss by every array that `selective_scan` took, by the names of its arguments, for use without
    PyTorch.

    Args:
        d_output, d_final_state: the loss's derivatives by the results, in their shapes; at least one of them.
        The others: as in the call of `selective_scan`.

    >>> import numpy as np
    >>> x, a, b = np.ones((1, 5, 4)), -np.ones((4, 3)), np.ones((1, 5, 1, 3))
    >>> sorted(fovea.selective_scan_gradients(x, x, a, b, b, x))
    ['a', 'b', 'c', 'delta', 'x']
    """
    given = _seen(x=x, delta=delta, a=a, b=b, c=c, d=d, z=z, delta_bias=delta_bias, initial_state=initial_state)
    option = _one_of(SCAN, "step_size", step_size, "softplus", "as_given")
    return _gradients(SCAN, option, given, Tokens(sequence_starts, present), d_output, d_final_state)


@named("causal_conv_gradients", "causal_conv")
def causal_conv_gradients(
    x: Any,
    weight: Any,
    d_output: Any,
    *,
    d_final_state: Any = None,
    bias: Any = None,
    activation: Optional[str] = None,
    initial_state: Any = None,
    sequence_starts: Any = None,
    present: Any = None,
) -> dict[str, Any]:
    """Derivatives of a loss by every array that `causal_conv` took, by the names of its arguments, for use without
    PyTorch.

    Args:
        d_output, d_final_state: the loss's derivatives by the results, in their shapes; at least one of them.
        The others: as in the call of `causal_conv`.

    >>> import numpy as np
    >>> x = np.ones((1, 3, 2))
    >>> fovea.causal_conv_gradients(x, np.ones((2, 4)), x)["weight"][0]
    array([0., 1., 2., 3.])
    """
    given = _seen(x=x, weight=weight, bias=bias, initial_state=initial_state)
    tokens = Tokens(sequence_starts, present)
    return _gradients(CONV, _activation(activation), given, tokens, d_output, d_final_state)


def _seen(**arrays: Any) -> dict[str, Any]:
    return {name: seen(x) for name, x in arrays.items()}


def _one_of(kind: Kind, argument: str, value: Any, *known: str) -> str:
    if not isinstance(value, str) or value not in known:
        raise InvalidArgument(kind.function, argument, " or ".join(map(repr, known)), shown(value))
    return value


def _activation(value: Any) -> str:
    return "none" if value is None else _one_of(CONV, "activation", value, "silu")


def _call(kind: Kind, option: str, given: dict[str, Any], tokens: Tokens, wants_state: bool) -> Any:
    checked(kind, given)
    x = given["x"]
    library = library_of(x)
    wants_state = truth(wants_state, f"{kind.function}.return_state")
    output, state = library.scan(kind, option, given, tokens, wants_state)
    output = library.result(output, x)
    return (output, library.result(state, x)) if wants_state else output


def _gradients(
    kind: Kind, option: str, given: dict[str, Any], tokens: Tokens, d_output: Any, d_final_state: Any
) -> dict[str, Any]:
    d_output, d_final_state = seen(d_output), seen(d_final_state)
    if d_output is None and d_final_state is None:
        raise InvalidArgument(kind.function, "d_output", "an array, or d_final_state", "neither")
    checked(kind, given)
    library = library_of(given["x"])
    found = gradients(kind, option, given, tokens, d_output, d_final_state)
    return {name: library.result(x, given["x"]) for name, x in found.items()}
