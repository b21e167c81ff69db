"""Merging: attention over disjoint sets of keys combines, by log-sum-exp, into attention over all of them."""

from __future__ import annotations

from typing import Any, Sequence

from . import _core
from ._arrays import check_unmasked, compute_dtype, described, dtype_name, library_of
from ._errors import InvalidArgument
from ._value import check_no_gradient, shown

__all__ = ["merge"]

# The engine's names of a pair's elements.
_PLACES = {"output": 0, "log_sum_exp": 1}


def merge(parts: Sequence[tuple[Any, Any]]) -> tuple[Any, Any]:
    """(output, log-sum-exp) over all keys, from those over parts of the keys (Milakov and Gimelshein 2018, arXiv
    1805.02867, section 3.1). Parts may be keys split over threads or machines, a prefix that many queries share, or
    pages of a cache. Merging is associative; (0, -inf) is its neutral element. It has no gradients: tensors that
    require them are refused.

    A part that begins at key n counts its keys from 0: subtract n from the `query_offset` of its call.

    Args:
        parts: the results of `attention(..., return_lse=True)` for each part, with softmax; at least one.

    >>> near = fovea.attention(q, k[:, :, 2:], v[:, :, 2:], query_offset=-2, mask=fovea.Causal(), return_lse=True)
    >>> far = fovea.attention(q, k[:, :, :2], v[:, :, :2], query_offset=0, mask=fovea.Causal(), return_lse=True)
    >>> whole, lse = fovea.merge([near, far])
    >>> bool(abs(whole - fovea.attention(q, k, v, mask=fovea.Causal())).max() < 1e-6)
    True
    """
    try:
        pairs = [(output, lse) for output, lse in parts]
    except (TypeError, ValueError):
        pairs = []
    if not pairs or any(x is None for pair in pairs for x in pair):
        raise InvalidArgument("merge", "parts", "a list of pairs (output, log-sum-exp), at least one", shown(parts))
    like = pairs[0][0]
    for n, pair in enumerate(pairs):
        for place, x in enumerate(pair):
            check_unmasked("merge", f"parts[{n}][{place}]", x)
            check_no_gradient("merge", f"parts[{n}][{place}]", x, " (detach it): merge has none")
    dtype, library = dtype_name(like, "parts[0][0]", "merge"), library_of(like)
    shape = tuple(int(n) for n in like.shape)
    if len(shape) != 4:
        raise InvalidArgument("merge", "parts[0][0]", "[batch, heads, query_len, value_dim]", described(like))
    output = library.empty(shape, dtype, like)
    log_sum_exp = library.empty(shape[:-1], compute_dtype(dtype), like)
    try:
        _core.merge([[library.operand(x) for x in pair] for pair in pairs], output, log_sum_exp)
    except InvalidArgument as error:
        part, _, name = error.argument.rpartition(".")
        argument = f"{part}[{_PLACES[name]}]" if name in _PLACES else error.argument
        raise InvalidArgument("merge", argument, error.expected, error.got) from None
    return library.result(output, like), library.result(log_sum_exp, like)
