"""Fovea for PyTorch: its scaled_dot_product_attention, and `patched`, which makes a model use it.

`fovea.attention` and `fovea.recurrence` accept tensors themselves; this module is for code that was written for
PyTorch's function, or for those of flash-linear-attention and mamba_ssm.
"""

from __future__ import annotations

from typing import Any, Optional, Sequence

from .. import _core
from .._arrays import library_of
from .._engine import make_request
from .._errors import InvalidArgument, named
from .._spec import take_apart
from ..normalizers import HardSample
from . import _op
from ._fla import delta_rule, gated_delta_rule, gla, kda, linear_attention, retention, rwkv7
from ._mamba import causal_conv1d, causal_conv1d_update, selective_scan, selective_state_update
from ._patch import patched
from ._report import Report
from ._sdpa import scaled_dot_product_attention
from ._ssd import ssd
from ._transformers_register import register_with_transformers

# TransformersCache is not among them: `import *` must not need transformers.
__all__ = ["Report", "patched", "register_with_transformers", "scaled_dot_product_attention", "score_function"]
__all__ += ["delta_rule", "gated_delta_rule", "gla", "kda", "linear_attention", "retention", "rwkv7", "ssd"]
__all__ += ["causal_conv1d", "causal_conv1d_update", "empty_cache", "selective_scan", "selective_state_update"]


_core.join_threads_of_torch()  # torch is loaded by now


def empty_cache() -> None:
    """Gives memory back to the system that Fovea keeps between steps of a training, as torch.cuda.empty_cache does.

    Forward saves the states of a recurrence for backward. Their memory is kept for the next step, at most as much as
    was in use at one time, because new memory would cost more time than the states spare. What tensors still use stays.
    """
    _core.release_memory()


def __getattr__(name: str) -> Any:
    if name == "TransformersCache":
        try:
            from ._transformers_cache import TransformersCache
        except ImportError as error:
            raise ImportError(f"fovea.torch.TransformersCache needs transformers 5.0 or later ({error})") from error
        return TransformersCache
    raise AttributeError(f"module 'fovea.torch' has no attribute {name!r}")


@named("score_function")
def score_function(
    query: Any,
    key: Any,
    value: Any,
    advantage: Any,
    *,
    seed: int,
    score: Any = None,
    mods: Sequence[Any] = (),
    mask: Any = None,
    scale: Optional[float] = None,
    query_offset: Any = None,
) -> Any:
    """A tensor 0 with the gradient Σ advantage · d ln P(key that `HardSample` drew). Add it to a loss so that the
    scores of hard attention learn (Williams 1992; Xu et al. 2015, arXiv 1502.03044, eq. 11).

    Args:
        query, key, value, score, mods, mask, scale, query_offset, seed: those of the call of `attention` with
            `normalizer=HardSample()`. In that call detach the tensors that make the scores: they get no gradient from
            it.
        advantage: [batch, num_query_heads, query_len], the loss of each row minus a baseline; it is a constant here.

    Returns:
        A tensor of one element, 0.

    >>> import torch, fovea.torch
    >>> q = torch.ones(1, 1, 2, 4, requires_grad=True)
    >>> k = torch.randn(1, 1, 3, 4)
    >>> out = fovea.attention(q.detach(), k, k, normalizer=fovea.HardSample(), seed=1)
    >>> fovea.torch.score_function(q, k, k, out.sum(-1), seed=1).backward()
    >>> q.grad.shape
    torch.Size([1, 1, 2, 4])
    """
    call = take_apart(
        query, score=score, mods=mods, mask=mask, normalizer=HardSample(), scale=scale
    )
    if seed is None:
        raise InvalidArgument("score_function", "seed", "that of the call of attention", "None")
    number = library_of(query).seed_number(seed)
    return _op.score_function(call, query, key, value, advantage, make_request(query_offset, number), seed)
