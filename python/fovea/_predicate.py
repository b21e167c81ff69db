"""Masks given as functions."""

from __future__ import annotations

import copy
from typing import Any, Callable

from . import _core
from ._entries import MOST_ROWS, mask_by_entry
from ._errors import InvalidArgument
from ._mask import Mask, Sizes, broadcasts
from ._pickle import check_function
from ._value import shown

__all__ = ["Predicate"]

# How many sites one call of a predicate covers: 4 MiB of truth values.
_MOST_SITES = 1 << 22
# Limits: a row takes at most one bit for each key, and evaluating all sites takes minutes.
_MOST_KEYS, _MOST_ASKED = 1 << 28, 1 << 36


class Predicate(Mask):
    """A mask given as a function. The function is evaluated once for each size of call, on blocks of index arrays.
    Its answers take at most one bit for each key and are kept as long as the function lives, so that calls run no
    Python.

    Args:
        visible: a function (batch, head, i, j) → truth values that broadcast to the common shape of its arguments.
            These are arrays of whole numbers with four axes: tensors if the query is a PyTorch tensor, NumPy arrays
            in other cases and in `plan`. i is counted in keys. The function is evaluated again only for other sizes.
            A mask_mod of PyTorch's FlexAttention is such a function.

    >>> every_third = fovea.Predicate(lambda b, h, i, j: (i - j) % 3 == 0)
    >>> fovea.attention(q, k, v, mask=fovea.Causal() & every_third).shape
    (1, 2, 4, 8)
    """

    visible: Callable[[Any, Any, Any, Any], Any]

    def _engine(self, sizes: Sizes) -> "_core.Mask":
        if not callable(self.visible):
            raise InvalidArgument("Predicate", "visible", "a function (batch, head, i, j)", shown(self.visible))
        # Without a lock: the function is the user's code, which may wait for other threads or fork. Threads that
        # arrive together may each evaluate it.
        known: dict[Sizes, _core.Mask] = self.__dict__.setdefault("_known", {})
        mask = known.get(sizes)
        if mask is None:
            mask = self._ask(sizes)
            if len(known) >= 16:
                known.clear()
            known[sizes] = mask
        return mask

    def __reduce_ex__(self, protocol: Any) -> Any:
        check_function(self.visible, "Predicate", "visible")
        return type(self), (self.visible,)  # the answers can be computed again

    def __copy__(self) -> "Predicate":
        return self  # and keeps the answers

    def __deepcopy__(self, memo: dict[int, Any]) -> "Predicate":
        return type(self)(copy.deepcopy(self.visible, memo))

    def _text(self) -> str:
        return f"predicate({getattr(self.visible, '__name__', type(self.visible).__name__)})"

    def _ask(self, sizes: Sizes) -> "_core.Mask":
        import numpy as np

        by_entry = isinstance(sizes.query_offset, tuple)
        offsets = np.asarray(sizes.query_offset, np.int64)

        def visible_at(batch: Any, head: Any, begin: int, end: int) -> Any:
            i = np.arange(begin, end)[None, None, :, None] + (offsets[batch] if by_entry else offsets)
            j = np.arange(sizes.key_len)[None, None, None, :]
            said = self.visible(*sizes.library.indices(batch, head, i, j))
            try:
                answer = sizes.library.truths(np.asarray(said))
            except Exception:
                raise InvalidArgument("Predicate", "visible", "truth values", shown(said)) from None
            full = (batch.shape[0], head.shape[1], end - begin, sizes.key_len)
            if answer.dtype != np.bool_ or answer.ndim > 4 or not broadcasts(answer.shape, full):
                raise InvalidArgument(
                    "Predicate",
                    "visible",
                    f"truth values that broadcast to {list(full)}",
                    f"{answer.dtype} {list(answer.shape)}",
                )
            # Axes that the answer does not depend on keep the size 1: batch entries and heads then share the spans.
            shape = (1,) * (4 - answer.ndim) + answer.shape
            return np.broadcast_to(answer, (shape[0], shape[1], *full[2:]))

        def check(batch: int, heads: int) -> None:
            queries = batch * heads * sizes.query_len
            if queries > MOST_ROWS or queries * sizes.key_len > _MOST_ASKED or sizes.key_len > _MOST_KEYS:
                raise InvalidArgument(
                    "Predicate",
                    "visible",
                    "at most 2^24 rows of 2^28 keys and 2^36 sites to ask for",
                    f"{[batch, heads, sizes.query_len, sizes.key_len]}",
                )

        check(1, 1)
        # Two entries and two heads show whether the answer depends on them.
        some = [np.arange(min(2, n)) for n in (sizes.batch, sizes.heads)]
        probe = visible_at(some[0][:, None, None, None], some[1][None, :, None, None], 0, min(1, sizes.query_len))
        batch, head = (
            1 if width == 1 else n for width, n in zip(probe.shape, (sizes.batch, sizes.heads))
        )
        check(batch, head)
        batches = np.arange(batch)[:, None, None, None]
        heads = np.arange(head)[None, :, None, None]
        rows = max(1, _MOST_SITES // max(1, sizes.key_len))
        if by_entry:
            said = lambda b, h, begin, end: visible_at(  # noqa: E731
                np.full((1, 1, 1, 1), b), np.full((1, 1, 1, 1), h), begin, end
            )
            return mask_by_entry(sizes, self._text()[10:-1], head, rows, said)
        spans = _core.PredicateRows()
        for b in range(len(batches)):
            for h in range(heads.shape[1]):
                for begin in range(0, sizes.query_len, rows):
                    end = min(begin + rows, sizes.query_len)
                    spans.append(visible_at(batches[b : b + 1], heads[:, h : h + 1], begin, end))
        return spans.finish(
            self._text()[10:-1],
            len(batches),
            heads.shape[1],
            sizes.query_offset,
            sizes.query_offset + sizes.query_len,
            sizes.key_len,
        )
