"""Recognises the masks of transformers' models, so that Fovea can skip what they hide.

transformers describes the mask of a call by nested functions of indices and a 2-D mask of padding. The functions that
transformers builds itself are recognised here and become masks of Fovea. Others are evaluated to a dense mask.
"""

from __future__ import annotations

import types
from typing import Any, Callable, Optional

import torch
from torch import Tensor

from ..masks import Causal, Chunked, Documents, Everything, KeyLengths, Mask, SlidingWindow

_aten = torch.ops.aten


class Visible:
    """Which keys each row of a batch sees.

    Args:
        sizes: (batch, 1, query_len, key_len), those of the dense form.
        mask: the same as a mask of Fovea, in the positions of the keys in memory; None: only the dense form is known.
        query_offset: the first query's position among these keys.
        make_dense: makes the dense form, truth values of `sizes`, True where a key is seen.
    """

    def __init__(
        self,
        sizes: tuple[int, ...],
        mask: Optional[Mask],
        query_offset: int,
        make_dense: Callable[[], Tensor],
    ) -> None:
        self.sizes, self.mask, self.query_offset = sizes, mask, query_offset
        self._make_dense = make_dense
        self._dense: Optional[Tensor] = None

    def dense(self) -> Tensor:
        """The dense form: truth values, [batch, 1, query_len, key_len]. Made once for all layers of a model."""
        if self._dense is None:
            self._dense = self._make_dense()
        return self._dense

    def added(self, dtype: torch.dtype) -> Tensor:
        """The numbers that transformers' eager attention adds to scores: 0, or the smallest number of the dtype for
        hidden keys."""
        return torch.where(self.dense(), torch.zeros((), dtype=dtype), torch.finfo(dtype).min)


class _Memory:
    """The dense form, made at its first read; several NamedMasks may be views of it."""

    tensor: Optional[Tensor] = None
    # Other code has a view of it, or it was written to. From then on it is the mask, and `name` is not valid any
    # more.
    open = False


class NamedMask(Tensor):
    """An additive mask [batch, 1, query_len, key_len] that allocates no memory until it is read.

    `attention_forward` uses the mask of Fovea in it. Any other operation reads the dense mask of
    `attn_implementation="eager"`, so that models with attention of their own get the results of "eager". With dtype
    bool it is mpt's form: True where a key is hidden.
    """

    visible: Visible
    _memory: _Memory
    # The dtype of the additive form.
    _added: torch.dtype

    @staticmethod
    def __new__(
        cls,
        visible: Visible,
        added: torch.dtype,
        dtype: Optional[torch.dtype] = None,
        memory: Optional[_Memory] = None,
    ) -> "NamedMask":
        self = Tensor._make_wrapper_subclass(cls, visible.sizes, dtype=dtype or added, device="cpu")
        self.visible, self._added, self._memory = visible, added, memory or _Memory()
        return self

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    def __repr__(self, **kwargs: Any) -> str:  # type: ignore[override]
        return f"NamedMask({self.visible.mask!r}, shape={list(self.shape)}, dtype={self.dtype})"

    @property
    def is_named(self) -> bool:
        return not self._memory.open

    def read(self) -> Tensor:
        """The dense form, as a plain tensor."""
        if self._memory.tensor is None:
            added = self.visible.added(self._added)
            self._memory.tensor = added if self.dtype == added.dtype else added.to(self.dtype)
        return self._memory.tensor

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        same = _unchanged(func, args, kwargs)
        if same is not None:
            return same
        result = func(*_read(args), **_read(kwargs))
        if func.is_view or func._schema.is_mutable:
            for x in args:
                if isinstance(x, NamedMask):
                    x._memory.open = True
        return result


def _unchanged(func: Any, args: Any, kwargs: Any) -> Optional[NamedMask]:
    """The result of an operation that leaves all entries in place; None: not such an operation."""
    mask = args[0] if args else None
    if not isinstance(mask, NamedMask) or not mask.is_named:
        return None
    if func in (_aten.detach.default, _aten.alias.default):
        return NamedMask(mask.visible, mask._added, mask.dtype, mask._memory)
    if func is _aten.slice.Tensor:
        _, axis, start, end, step = (*args, *(0, None, None, 1)[len(args) - 1 :])
        whole = (start or 0) == 0 and (end is None or end >= mask.shape[axis]) and step == 1
        return NamedMask(mask.visible, mask._added, mask.dtype, mask._memory) if whole else None
    if func is _aten._to_copy.default:
        to = kwargs.get("dtype") or mask.dtype
        # Converted truth values would be 1 where the additive form has the smallest number.
        by_name = to == mask.dtype or mask.dtype == mask._added and (to == torch.bool or to.is_floating_point)
        if by_name and torch.device(kwargs.get("device") or "cpu").type == "cpu":
            return NamedMask(mask.visible, to if to.is_floating_point else mask._added, to)
    return None


def _read(x: Any) -> Any:
    if isinstance(x, NamedMask):
        return x.read()
    if isinstance(x, (list, tuple)):
        return type(x)(_read(part) for part in x)
    if isinstance(x, dict):
        return {name: _read(part) for name, part in x.items()}
    return x


class Reader:
    """Recognises the functions of transformers.masking_utils by the code objects that they share."""

    def __init__(self, masking_utils: Any) -> None:
        m = masking_utils
        causal = m.causal_mask_function
        none = torch.zeros(1, 1, dtype=torch.long)
        self._known: dict[types.CodeType, Callable[[dict[str, Any], int], Optional[Mask]]] = {
            causal.__code__: lambda held, first: Causal(),
            m.bidirectional_mask_function.__code__: lambda held, first: Everything(),
            m.and_masks(causal).__code__: self._all_of,
            m.sliding_window_overlay(1).__code__: _window,
            m.sliding_window_bidirectional_overlay(1).__code__: _window_both_ways,
            m.chunked_overlay(1, none).__code__: _chunks,
            m.packed_sequence_mask_function(none).__code__: _documents,
            m.remap_positions_for_packed_sequence(causal, none).__code__: self._within_documents,
        }

    def name(self, function: Any, first_key: int) -> Optional[Mask]:
        """The mask of Fovea for keys that begin at position `first_key`; None: not recognised."""
        read = self._known.get(getattr(function, "__code__", None))  # type: ignore[arg-type]
        return None if read is None else read(_held(function), first_key)

    def _all_of(self, held: dict[str, Any], first_key: int) -> Optional[Mask]:
        found = [self.name(part, first_key) for part in held.get("mask_functions", (None,))]
        return _joined(found)

    def _within_documents(self, held: dict[str, Any], first_key: int) -> Optional[Mask]:
        """Positions that restart in each document. Differences within a document are unchanged, so masks of
        differences are unchanged too. transformers combines this with the mask of the documents."""
        mask = self.name(held.get("mask_function"), first_key)
        return mask if mask is not None and _counts_differences(mask) else None


def _held(function: Any) -> dict[str, Any]:
    cells = function.__closure__ or ()
    return dict(zip(function.__code__.co_freevars, (cell.cell_contents for cell in cells)))


def _joined(parts: "list[Optional[Mask]]") -> Optional[Mask]:
    whole: Mask = Everything()
    for part in parts:
        if part is None:
            return None
        if not isinstance(part, Everything):
            whole = part if isinstance(whole, Everything) else whole & part
    return whole


def _counts_differences(mask: Mask) -> bool:
    return isinstance(mask, (Causal, SlidingWindow, Everything)) or bool(mask._parts()) and all(
        map(_counts_differences, mask._parts())
    )


def _window(held: dict[str, Any], first_key: int) -> Optional[Mask]:
    """Their number counts the query's own position."""
    size = held.get("sliding_window")
    return SlidingWindow(size - 1) if isinstance(size, int) and size >= 1 else None


def _window_both_ways(held: dict[str, Any], first_key: int) -> Optional[Mask]:
    size = held.get("sliding_window")
    return SlidingWindow(size, size) if isinstance(size, int) and size >= 0 else None


def _chunks(held: dict[str, Any], first_key: int) -> Optional[Mask]:
    size, padding = held.get("chunk_size"), held.get("left_padding")
    aligned = isinstance(size, int) and size >= 1 and first_key % size == 0
    return Chunked(size) if aligned and isinstance(padding, Tensor) and not padding.any() else None


def _documents(held: dict[str, Any], first_key: int) -> Optional[Mask]:
    """One list of documents for the whole batch, which is what packing makes: a batch of one row."""
    numbers = held.get("packed_sequence_mask")
    if not isinstance(numbers, Tensor) or not (numbers == numbers[:1]).all():
        return None
    starts = torch.nonzero(numbers[0, 1:] != numbers[0, :-1]).flatten() + 1
    return Documents([0, *starts.tolist(), numbers.shape[1]])


def padding(seen: Tensor) -> Optional[Mask]:
    """The mask of Fovea that hides padding; None: the visible keys of some row are not contiguous.

    Args:
        seen: truth values [batch, key_len], True for a key that is not padding.
    """
    if bool(seen.all()):
        return Everything()
    keys = seen.shape[1]
    count = seen.sum(-1)
    first = torch.where(count > 0, seen.to(torch.uint8).argmax(-1), 0)
    at = torch.arange(keys)
    if not torch.equal(seen, (at >= first[:, None]) & (at < (first + count)[:, None])):
        return None
    ends = KeyLengths((first + count).tolist())
    if not first.any():
        return ends
    starts = ~KeyLengths(first.tolist())
    return starts if bool((first + count == keys).all()) else ends & starts
