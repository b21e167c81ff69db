"""Tensors for keys and values that stay in a cache: they are gathered only if other code than Fovea's reads them."""

from __future__ import annotations

from typing import Any, Optional

import torch
from torch import Tensor

from .. import _core
from .._arrays import LONG_NAMES
from ..cache import LayerOfCache
from ._tensors import TENSORS


class HeldRows(LayerOfCache):
    """The rows that sequences of one length had in a layer when this was made. They stay as they are."""

    def __init__(self, layer: LayerOfCache, sequences: Any):
        super().__init__(layer.cache, layer.number)
        self._held = layer._views(sequences, "TransformersCache.update")
        self._gathered: Optional[dict[str, Tensor]] = None

    def _views(self, sequences: Any, function: str) -> list[Any]:
        return self._held

    @property
    def dtype(self) -> torch.dtype:
        found: torch.dtype = getattr(torch, LONG_NAMES[self.spec.dtype])
        return found

    def sizes(self, name: str) -> tuple[int, int, int, int]:
        """[sequences, num_kv_heads, length, dim] of "key" or "value"."""
        spec = self.spec
        value_dim = spec.head_dim if spec.value_dim is None else spec.value_dim
        dim = spec.head_dim if name == "key" else value_dim
        return len(self._held), spec.num_kv_heads, self._held[0].length, dim

    def gathered(self, name: str) -> Tensor:
        if self._gathered is None:
            # Rows that were dropped are 0: other code may multiply what its mask hides.
            copies = {n: torch.zeros(self.sizes(n), dtype=self.dtype) for n in ("key", "value")}
            handed = TENSORS.handed(copies)
            _core.gather(self._held, 0, handed["key"], handed["value"])  # other threads run meanwhile
            self._gathered = copies
        return self._gathered[name]


class CachedRows(Tensor):
    """The keys or the values of a layer, [batch, num_kv_heads, length, dim]. Fovea's attention reads them in the cache;
    any other operation reads a copy, which is made once."""

    rows: HeldRows
    part: str  # "key" or "value"
    # Other code has a view of the copy, or wrote to it. From then on the copy is what the tensor holds.
    open: bool

    @staticmethod
    def __new__(cls, rows: HeldRows, part: str) -> "CachedRows":
        self = Tensor._make_wrapper_subclass(cls, rows.sizes(part), dtype=rows.dtype, device="cpu")
        self.rows, self.part, self.open = rows, part, False
        return self

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    def __repr__(self, **kwargs: Any) -> str:  # type: ignore[override]
        return f"CachedRows({self.part} of {self.rows!r}, shape={list(self.shape)})"

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.is_view or func._schema.is_mutable:
            for x in args:
                if isinstance(x, CachedRows):
                    x.open = True
        return func(*_read(args), **_read(kwargs or {}))


def _read(x: Any) -> Any:
    if isinstance(x, CachedRows):
        return x.rows.gathered(x.part)
    if isinstance(x, (list, tuple)):
        return type(x)(_read(part) for part in x)
    if isinstance(x, dict):
        return {name: _read(part) for name, part in x.items()}
    return x


def in_cache(key: Any, value: Any) -> Optional[HeldRows]:
    """The rows in a cache that a call may read in place of these tensors; None: they are tensors as any others."""
    if not isinstance(key, CachedRows) or not isinstance(value, CachedRows) or key.open or value.open:
        return None
    return key.rows if key.rows is value.rows and (key.part, value.part) == ("key", "value") else None


def plain(x: Any) -> Any:
    """x, or the copy of its rows."""
    return _read(x) if isinstance(x, CachedRows) else x


__all__ = ["CachedRows", "HeldRows", "in_cache", "plain"]
