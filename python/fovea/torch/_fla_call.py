"""A call of a function with the arguments of flash-linear-attention, as a call of `fovea.recurrence`."""

from __future__ import annotations

from typing import Any, Optional

import torch
from torch import Tensor
from torch.nn.functional import softplus

from .._arrays import described
from .._errors import InvalidArgument
from .._recurrence import recurrence
from .._value import real, shown, truth
from ..recurrences import Decay, DeltaWrite, KeyDecay
from ._arguments import check_shape, starts_tensor
from ._op import checked_tensor

# What fla's functions take for their speed on GPUs. It changes no result.
_NO_EFFECT = frozenset({"chunk_indices", "chunk_size", "cu_seqlens_cpu", "disable_recompute", "safe_gate"})


class Call:
    """A call of one of these functions: its operands in Fovea's layout, and its spec."""

    def __init__(
        self, function: str, q: Any, k: Any, v: Any, options: dict[str, Any], query: str = "q", decay: str = "g"
    ) -> None:
        self.function = function
        self.spec: dict[str, Any] = {}
        self.names = {"query": query, "key": "k", "value": "v", "decay.log_decay": decay, "write.beta": "beta"}
        self.names.update({"sequence_starts": "cu_seqlens", "write.a": "a", "write.b": "b"})
        for name, x in options.items():
            if name == "head_first" and x or name == "cp_context" and x is not None:
                expected = "False: tensors are [B, T, H, ...]" if name == "head_first" else "None"
                raise InvalidArgument(function, name, expected, shown(x))
            if name not in _NO_EFFECT and name not in ("head_first", "cp_context"):
                raise TypeError(f"{function}() got an unexpected keyword argument {name!r}")
        for name, x in ((query, q), ("k", k), ("v", v)):
            checked_tensor(function, name, x, "[B, T, H, dim]")
            if x.dim() != 4:
                raise InvalidArgument(function, name, "[B, T, H, dim]", described(x))
        if q.shape != k.shape:
            raise InvalidArgument(function, query, f"the shape of k {list(k.shape)}", described(q))
        grouped = function in ("gated_delta_rule", "kda")
        fits = v.shape[2] == k.shape[2] or grouped and k.shape[2] > 0 and v.shape[2] % k.shape[2] == 0
        if v.shape[:2] != k.shape[:2] or not fits:
            heads = f"heads in a multiple of {k.shape[2]}" if grouped else f"{k.shape[2]} heads"
            raise InvalidArgument(
                function, "v", f"{k.shape[0]} entries of {k.shape[1]} tokens with {heads}", described(v)
            )
        self.q, self.k, self.v = q, k, v

    def tokens(self, name: str, x: Any, dim: Optional[int] = None) -> Tensor:
        """A tensor [B, T, HV], or [B, T, HV, dim], with the heads before the tokens."""
        shape = (*self.v.shape[:3], *(() if dim is None else (dim,)))
        if not isinstance(x, Tensor) or x.shape != shape:
            raise InvalidArgument(self.function, name, f"a tensor {[int(n) for n in shape]}", described(x))
        return x.transpose(1, 2)

    def beta(self, beta: Any, sigmoid: bool, doubled: bool) -> Any:
        if doubled and not sigmoid:
            raise InvalidArgument(
                self.function, "allow_neg_eigval", "False without use_beta_sigmoid_in_kernel=True", "True"
            )
        if not sigmoid:
            return beta
        self.tokens("beta", beta)
        found = torch.sigmoid(_wide(beta))
        return 2 * found if doubled else found

    def gate(
        self, g: Any, A_log: Any, dt_bias: Any, dim: Optional[int] = None, lower_bound: Optional[float] = None
    ) -> Tensor:
        """The logarithms of decays from raw gates [B, T, HV], or [B, T, HV, dim] as kda has them."""
        self.tokens("g", g, dim)
        heads = self.v.shape[2]
        # Kimi Linear stores A_log with axes of size 1 around the heads.
        check_shape(self.function, "A_log", A_log, "[HV]", (heads,), *([] if dim is None else [(1, 1, heads, 1)]))
        if A_log is None and lower_bound is None:
            raise InvalidArgument(self.function, "A_log", "a tensor beside use_gate_in_kernel=True", "None")
        if dim is None:
            check_shape(self.function, "dt_bias", dt_bias, "[HV]", (heads,))
        else:
            check_shape(self.function, "dt_bias", dt_bias, "[HV * K]", (heads * dim,), (heads, dim))
        g = _wide(g)
        of_heads = (heads,) if dim is None else (heads, 1)
        if dt_bias is not None:
            g = g + dt_bias.to(g.dtype).reshape(g.shape[2:])
        factor = 1.0 if A_log is None else A_log.to(g.dtype).reshape(of_heads).exp()
        if lower_bound is None:
            return -factor * softplus(g)
        least = real(lower_bound, f"{self.function}.lower_bound")
        if not least <= 0:
            raise InvalidArgument(self.function, "lower_bound", "a number of at most 0", shown(lower_bound))
        return least * torch.sigmoid(factor * g)

    def delta(self, beta: Any, normalises: bool) -> None:
        if beta is None:
            beta = self.v.new_ones(self.v.shape[:3])
        self.spec["write"] = DeltaWrite(self.tokens("beta", beta))
        if normalises:
            self.q, self.k = unit_length(self.q), unit_length(self.k)

    def state(self, state: Any) -> None:
        """Throws unless it has the axes of a state."""
        checked_tensor(self.function, "initial_state", state, "or None")
        if state.dim() != 4:
            raise InvalidArgument(self.function, "initial_state", "[N, H, K, V]", described(state))

    def run(
        self,
        scale: Optional[float],
        initial_state: Any,
        output_final_state: bool,
        cu_seqlens: Any,
        state_v_first: bool = False,
        reverse: bool = False,
    ) -> tuple[Tensor, Optional[Tensor]]:
        state = initial_state
        if state is not None:
            self.state(state)
            state = state.transpose(-1, -2) if state_v_first else state
        starts = None if cu_seqlens is None else starts_tensor(self.function, cu_seqlens)
        if starts is not None and self.q.shape[0] != 1:
            raise InvalidArgument(
                self.function, self.names["query"], "a batch of 1 beside cu_seqlens", described(self.q)
            )
        q, k, v = (x.transpose(1, 2) for x in (self.q, self.k, self.v))
        if reverse:
            q, k, v = (x.flip(2) for x in (q, k, v))
            self.spec["decay"] = _reversed(self.spec.get("decay"))
            if starts is not None:
                starts = k.shape[2] - starts.flip(0)
                state = state if state is None else state.flip(0)
        options = {"scale": scale, "initial_state": state, "sequence_starts": starts}
        output_final_state = truth(output_final_state, f"{self.function}.output_final_state")
        try:
            found = recurrence(q, k, v, return_state=output_final_state, **options, **self.spec)
        except InvalidArgument as error:
            name = self.names.get(error.argument, error.argument)
            got = shown(cu_seqlens) if reverse and name == "cu_seqlens" else error.got  # reversed there
            raise InvalidArgument(self.function, name, error.expected, got) from None
        o, state = found if output_final_state else (found, None)
        if reverse:
            o = o.flip(2)
            state = state if state is None or starts is None else state.flip(0)
        if state is not None and state_v_first:
            state = state.transpose(-1, -2)
        return o.transpose(1, 2), state


def _reversed(decay: Optional[Decay]) -> Optional[Decay]:
    return KeyDecay(decay.log_decay.flip(2)) if isinstance(decay, KeyDecay) else decay


def _wide(x: Tensor) -> Tensor:
    """x in the dtype in which gates are computed."""
    return x if x.dtype == torch.float64 else x.float()


def unit_length(x: Tensor) -> Tensor:
    """x/√(Σx² + 1e-6) for each row, computed in f32 (f64 for f64)."""
    wide = _wide(x)
    # The norm reads x once; the sum of its squares would write and read a copy, which takes longer than the recurrence.
    squares = torch.linalg.vector_norm(wide, dim=-1, keepdim=True).square()
    return (wide * torch.rsqrt(squares + 1e-6)).to(x.dtype)


__all__ = ["Call"]
