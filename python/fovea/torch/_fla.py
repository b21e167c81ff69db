"""Recurrences with the argument names, layouts and defaults of flash-linear-attention (fla, v0.6): tensors are
[batch, tokens, heads, dim], states [sequences, heads, key_dim, value_dim] in f32 (f64 for f64).

fla has two functions for a mechanism, chunk_* and fused_recurrent_*, which compute the same. Here is one. Its arguments are
positional up to the first that fla's two have at different places, and the others go by name: a call in the other order would
have another meaning. The exception is beta of `gated_delta_rule`, whose shape differs from that of fla's gk.
"""

from __future__ import annotations

from typing import Any, Optional

import torch
from torch import Tensor

from .._arrays import described
from .._errors import InvalidArgument
from .._value import shown
from ..recurrences import ConstantDecay, DiagonalPlusLowRankWrite, KeyDecay, KeySum, ScalarDecay
from ._fla_call import Call

__all__ = ["delta_rule", "gated_delta_rule", "gla", "kda", "linear_attention", "retention", "rwkv7"]


def linear_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: Optional[float] = None,
    initial_state: Any = None,
    output_final_state: bool = False,
    *,
    reverse: bool = False,
    normalize: bool = True,
    cu_seqlens: Any = None,
    **options: Any,
) -> tuple[Tensor, Any]:
    """S = S₋ + k vᵀ, o = scale · Sᵀq (Katharopoulos et al. 2020, arXiv 2006.16236). A feature map is the caller's, as
    in fla: give mapped queries and keys.

    Args:
        q, k: [B, T, H, K].
        v: [B, T, H, V].
        scale: None: 1/sqrt(K).
        initial_state: [N, H, K, V]; with normalize the pair of it and the sum of earlier keys, [N, 1, H, K]. N is the
            number of sequences: B, or one for each of cu_seqlens.
        reverse: whether tokens are read from the last to the first.
        normalize: whether the output is divided by the same sum with values of 1, plus 1e-10.
        cu_seqlens: [N + 1], where packed sequences begin; B is then 1.
        options: fla's arguments for speed on GPUs (`chunk_size`, `cu_seqlens_cpu`, ...), which change nothing here.

    Returns:
        (o [B, T, H, V], the final state as initial_state is one, or None).

    >>> import torch, fovea.torch
    >>> q = k = v = torch.rand(1, 5, 2, 4)
    >>> fovea.torch.linear_attention(q, k, v)[0].shape
    torch.Size([1, 5, 2, 4])
    """
    call = Call("linear_attention", q, k, v, options)
    if normalize:
        call.spec["normalizer"] = KeySum(1e-10)
        initial_state = _with_sums(call, initial_state)
    o, state = call.run(scale, initial_state, output_final_state, cu_seqlens, reverse=reverse)
    if normalize and state is not None:
        return o, (state[..., :-1], state[..., -1].unsqueeze(1))
    return o, state


def _with_sums(call: Call, state: Any) -> Optional[Tensor]:
    """The state of `KeySum`: its last column is the sum of keys."""
    if state is None:
        return None
    if not isinstance(state, (tuple, list)):
        call.state(state)
        return torch.cat([state, torch.zeros_like(state[..., :1])], -1)
    if len(state) != 2 or not all(isinstance(x, Tensor) for x in state) or state[1].dim() != 4:
        expected = "a tensor [N, H, K, V], or the pair of it and the sums of keys [N, 1, H, K]"
        raise InvalidArgument(call.function, "initial_state", expected, shown(state))
    values, sums = state
    if sums.squeeze(1).shape != values.shape[:-1]:
        raise InvalidArgument(
            call.function, "initial_state", "sums of keys [N, 1, H, K] beside a state [N, H, K, V]", described(sums)
        )
    return torch.cat([values, sums.squeeze(1).unsqueeze(-1).to(values.dtype)], -1)


def retention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: Optional[float] = None,
    initial_state: Optional[Tensor] = None,
    output_final_state: bool = False,
    *,
    reverse: bool = False,
    state_v_first: bool = False,
    cu_seqlens: Any = None,
    **options: Any,
) -> tuple[Tensor, Optional[Tensor]]:
    """S = γ S₋ + k vᵀ, o = scale · Sᵀq, with γ = 1 - 2^(-5-head) (RetNet, Sun et al. 2023, arXiv 2307.08621). Rotary
    positions before and the norm behind are the caller's.

    Args:
        q, k: [B, T, H, K].
        v: [B, T, H, V].
        state_v_first: whether states are [N, H, V, K].
        The others: as in `linear_attention`; initial_state is [N, H, K, V].

    Returns:
        (o [B, T, H, V], the final state or None).

    >>> import torch, fovea.torch
    >>> q = k = v = torch.rand(1, 5, 2, 4)
    >>> fovea.torch.retention(q, k, v, output_final_state=True)[1].shape
    torch.Size([1, 2, 4, 4])
    """
    call = Call("retention", q, k, v, options)
    heads = torch.arange(v.shape[2], dtype=torch.float64)
    call.spec["decay"] = ConstantDecay(torch.log1p(-torch.exp2(-5 - heads)))
    return call.run(scale, initial_state, output_final_state, cu_seqlens, state_v_first, reverse)


def gla(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    *,
    scale: Optional[float] = None,
    initial_state: Optional[Tensor] = None,
    output_final_state: bool = False,
    reverse: bool = False,
    state_v_first: bool = False,
    cu_seqlens: Any = None,
    **options: Any,
) -> tuple[Tensor, Optional[Tensor]]:
    """S = diag(e^g) S₋ + k vᵀ, o = scale · Sᵀq (gated linear attention, Yang et al. 2023, arXiv 2312.06635).

    Args:
        q, k: [B, T, H, K].
        v: [B, T, H, V].
        g: [B, T, H, K], logarithms of decays, at most 0 (gk of fla's fused_recurrent_gla).
        The others: as in `retention`.

    Returns:
        (o [B, T, H, V], the final state or None).

    >>> import torch, fovea.torch
    >>> q = k = v = torch.rand(1, 5, 2, 4)
    >>> fovea.torch.gla(q, k, v, -torch.rand(1, 5, 2, 4))[0].shape
    torch.Size([1, 5, 2, 4])
    """
    call = Call("gla", q, k, v, options)
    call.spec["decay"] = KeyDecay(call.tokens("g", g, k.shape[-1]))
    return call.run(scale, initial_state, output_final_state, cu_seqlens, state_v_first, reverse)


def delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    beta: Optional[Tensor] = None,
    scale: Optional[float] = None,
    initial_state: Optional[Tensor] = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    cu_seqlens: Any = None,
    **options: Any,
) -> tuple[Tensor, Optional[Tensor]]:
    """S = S₋ + beta k (v - S₋ᵀk)ᵀ, o = scale · Sᵀq (DeltaNet, Yang et al. 2024, arXiv 2406.06484).

    Args:
        q, k: [B, T, H, K].
        v: [B, T, H, V].
        beta: [B, T, H]; None: 1. With keys of length 1 the state stays bounded up to beta = 2.
        use_qk_l2norm_in_kernel: whether each row x of q and k becomes x/√(Σx² + 1e-6) first.
        The others: as in `linear_attention`; initial_state is [N, H, K, V].

    Returns:
        (o [B, T, H, V], the final state or None).

    >>> import torch, fovea.torch
    >>> q = k = v = torch.rand(1, 5, 2, 4)
    >>> fovea.torch.delta_rule(q, k, v, torch.rand(1, 5, 2), use_qk_l2norm_in_kernel=True)[0].shape
    torch.Size([1, 5, 2, 4])
    """
    call = Call("delta_rule", q, k, v, options)
    call.delta(beta, use_qk_l2norm_in_kernel)
    return call.run(scale, initial_state, output_final_state, cu_seqlens)


def gated_delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Optional[Tensor] = None,
    beta: Optional[Tensor] = None,
    *,
    scale: Optional[float] = None,
    initial_state: Optional[Tensor] = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    use_gate_in_kernel: bool = False,
    A_log: Optional[Tensor] = None,
    dt_bias: Optional[Tensor] = None,
    use_beta_sigmoid_in_kernel: bool = False,
    allow_neg_eigval: bool = False,
    state_v_first: bool = False,
    cu_seqlens: Any = None,
    **options: Any,
) -> tuple[Tensor, Optional[Tensor]]:
    """S = D + beta k (v - Dᵀk)ᵀ with D = e^g S₋, o = scale · Sᵀq (gated DeltaNet, Yang et al. 2024, arXiv 2412.06464).

    Args:
        q, k: [B, T, H, K].
        v: [B, T, HV, V]. HV is a multiple of H: head h of the values has the query and the key of h // (HV // H).
        g: [B, T, HV], logarithms of decays, at most 0; None: 0.
        beta: [B, T, HV]; None: 1.
        scale: None: 1/sqrt(K).
        initial_state: [N, HV, K, V], where N is B, or the number of packed sequences.
        use_qk_l2norm_in_kernel: whether each row x of q and k becomes x/√(Σx² + 1e-6) first.
        use_gate_in_kernel: whether the decay is -e^A_log · softplus(g + dt_bias), with A_log [HV] and dt_bias [HV] or
            None.
        use_beta_sigmoid_in_kernel: whether beta becomes sigmoid(beta); with allow_neg_eigval twice that.
        state_v_first: whether states are [N, HV, V, K].
        cu_seqlens: [N + 1], where packed sequences begin; B is then 1.
        options: fla's arguments for speed on GPUs, which change nothing here.

    Returns:
        (o [B, T, HV, V], the final state or None).

    >>> import torch, fovea.torch
    >>> q = k = torch.rand(1, 5, 2, 4)
    >>> v, g, beta = torch.rand(1, 5, 6, 3), -torch.rand(1, 5, 6), torch.rand(1, 5, 6)
    >>> o, state = fovea.torch.gated_delta_rule(
    ...     q, k, v, g, beta, output_final_state=True, use_qk_l2norm_in_kernel=True
    ... )
    >>> o.shape, state.shape
    (torch.Size([1, 5, 6, 3]), torch.Size([1, 6, 4, 3]))
    """
    call = Call("gated_delta_rule", q, k, v, options)
    if use_gate_in_kernel:
        g = call.gate(g, A_log, dt_bias)
    if g is not None:
        call.spec["decay"] = ScalarDecay(call.tokens("g", g))
    call.delta(call.beta(beta, use_beta_sigmoid_in_kernel, allow_neg_eigval), use_qk_l2norm_in_kernel)
    return call.run(scale, initial_state, output_final_state, cu_seqlens, state_v_first)


def kda(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    g: Tensor,
    beta: Optional[Tensor] = None,
    *,
    scale: Optional[float] = None,
    initial_state: Optional[Tensor] = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    use_gate_in_kernel: bool = False,
    A_log: Optional[Tensor] = None,
    dt_bias: Optional[Tensor] = None,
    use_beta_sigmoid_in_kernel: bool = False,
    allow_neg_eigval: bool = False,
    lower_bound: Optional[float] = None,
    state_v_first: bool = False,
    cu_seqlens: Any = None,
    **options: Any,
) -> tuple[Tensor, Optional[Tensor]]:
    """S = D + beta k (v - Dᵀk)ᵀ with D = diag(e^g) S₋, o = scale · Sᵀq (Kimi Delta Attention, arXiv 2510.26692).

    Args:
        q, k: [B, T, H, K].
        v: [B, T, HV, V].
        g: [B, T, HV, K], logarithms of decays, at most 0.
        use_gate_in_kernel: whether the decay is -e^A_log · softplus(g + dt_bias), with A_log [HV] or [1, 1, HV, 1], and
            dt_bias [HV · K], [HV, K] or None. With lower_bound it is lower_bound · sigmoid(e^A_log · (g + dt_bias)),
            and A_log may be None.
        The others: as in `gated_delta_rule`.

    Returns:
        (o [B, T, HV, V], the final state or None).

    >>> import torch, fovea.torch
    >>> q = k = v = torch.rand(1, 5, 2, 4)
    >>> fovea.torch.kda(q, k, v, -torch.rand(1, 5, 2, 4), torch.rand(1, 5, 2))[0].shape
    torch.Size([1, 5, 2, 4])
    """
    call = Call("kda", q, k, v, options)
    if use_gate_in_kernel:
        g = call.gate(g, A_log, dt_bias, k.shape[3], lower_bound)
    call.spec["decay"] = KeyDecay(call.tokens("g", g, k.shape[-1]))
    call.delta(call.beta(beta, use_beta_sigmoid_in_kernel, allow_neg_eigval), use_qk_l2norm_in_kernel)
    return call.run(scale, initial_state, output_final_state, cu_seqlens, state_v_first)


def rwkv7(
    r: Tensor,
    w: Tensor,
    k: Tensor,
    v: Tensor,
    a: Tensor,
    b: Tensor,
    scale: Optional[float] = 1.0,
    initial_state: Optional[Tensor] = None,
    output_final_state: bool = False,
    cu_seqlens: Any = None,
    **options: Any,
) -> tuple[Tensor, Optional[Tensor]]:
    """S = diag(e^w) S₋ + b (S₋ᵀa)ᵀ + k vᵀ, o = scale · Sᵀr (RWKV-7, Peng et al. 2025, arXiv 2503.14456).

    Args:
        r, k, a, b: [B, T, H, K].
        w: [B, T, H, K], logarithms of decays, at most 0.
        v: [B, T, H, V].
        scale: None: 1/sqrt(K).
        The others: as in `linear_attention`; initial_state is [N, H, K, V].

    Returns:
        (o [B, T, H, V], the final state or None).

    >>> import torch, fovea.torch
    >>> r = k = v = a = torch.rand(1, 5, 2, 4)
    >>> fovea.torch.rwkv7(r, -torch.rand(1, 5, 2, 4), k, v, -a, a / 4)[0].shape
    torch.Size([1, 5, 2, 4])
    """
    call = Call("rwkv7", r, k, v, options, query="r", decay="w")
    call.spec["decay"] = KeyDecay(call.tokens("w", w, k.shape[-1]))
    low_rank = (call.tokens(name, x, k.shape[-1]) for name, x in (("a", a), ("b", b)))
    call.spec["write"] = DiagonalPlusLowRankWrite(*low_rank)
    return call.run(scale, initial_state, output_final_state, cu_seqlens)
