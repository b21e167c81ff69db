"""Masks given as arrays of truth values."""

from __future__ import annotations

from typing import Any, Sequence

from . import _core
from ._arrays import check_unmasked, described
from ._entries import mask_by_entry
from ._errors import InvalidArgument
from ._mask import Mask, Sizes, broadcasts

__all__ = ["ArrayMask"]


class ArrayMask(Mask):
    """Key j is visible where the array is True. It is what `mask=array` means, as a value that can be combined with
    others.

    Args:
        visible: truth values, [batch or 1, heads or 1, query_len or 1, key_len or 1], leading axes may be missing.
            Row i is that of query i, whatever the query offset.

    >>> import numpy as np
    >>> fovea.attention(q, k, v, mask=fovea.Causal() & fovea.ArrayMask(np.eye(4, dtype=bool))).shape
    (1, 2, 4, 8)
    """

    visible: Any

    def __post_init__(self) -> None:
        if isinstance(self.visible, (list, tuple)):
            import numpy as np

            object.__setattr__(self, "visible", np.asarray(self.visible))

    def _engine(self, sizes: Sizes) -> "_core.Mask":
        wanted = (sizes.batch, sizes.heads, sizes.query_len, sizes.key_len)
        check_unmasked("attention", "mask", self.visible)
        shape = tuple(int(n) for n in getattr(self.visible, "shape", ()))
        if str(getattr(self.visible, "dtype", "")).rsplit(".", 1)[-1] != "bool" or len(shape) > 4:
            raise InvalidArgument(
                "attention", "mask", "truth values of at most 4 axes", described(self.visible)
            )
        device = str(getattr(self.visible, "device", "cpu"))
        if device != "cpu":
            raise InvalidArgument("attention", "mask", "an array in the CPU's memory", f"one on {device}")
        if not broadcasts(shape, wanted):
            raise InvalidArgument(
                "attention", "mask", f"truth values that broadcast to {list(wanted)}", described(self.visible)
            )
        four = self.visible.reshape((1,) * (4 - len(shape)) + shape)
        shape = tuple(four.shape)
        visible = four if shape[2:] == wanted[2:] else _expand(four, (*shape[:2], *wanted[2:]))
        if not isinstance(sizes.query_offset, tuple):
            return _core.mask_of_array(visible, sizes.query_offset)

        def said(entry: int, head: int, begin: int, end: int) -> Any:
            entry, head = entry % shape[0], head % shape[1]
            return visible[entry : entry + 1, head : head + 1, begin:end]

        return mask_by_entry(sizes, "array", shape[1], max(1, sizes.query_len), said)

    def _text(self) -> str:
        return "predicate(array)"


def _expand(array: Any, shape: Sequence[int]) -> Any:
    if hasattr(array, "expand"):
        return array.expand(*shape)
    import numpy as np

    return np.broadcast_to(np.asarray(array), shape)
