"""The layers of a cache, and how their rows are stored."""

from __future__ import annotations

from typing import Any, Optional

from ._errors import InvalidArgument
from ._value import Value, integer, shown

__all__ = ["CacheLayer", "Contiguous", "LastRow", "Paged", "Ring"]

_DTYPES = ("f32", "f64", "bf16", "f16")
_VALUES = ("own", "first_of_keys", "none")


def whole(x: Any, name: str) -> int:
    return int(integer(x, name))


class Store(Value):
    """The base class of stores."""

    def _checked(self) -> "Store":
        """The same with plain numbers."""
        return type(self)(*(whole(x, f"{type(self).__name__}.{name}") for name, x in self._fields().items()))

    def _parts(self) -> tuple[Any, ...]:
        """Its name in the engine and three numbers."""
        raise NotImplementedError


class Contiguous(Store):
    """One buffer a sequence, whose capacity doubles. A fork copies it at its first write.

    >>> fovea.CacheLayer(2, 64, store=fovea.Contiguous(capacity=1024))
    fovea.CacheLayer(2, 64, store=fovea.Contiguous(1024))
    """

    capacity: int = 64

    def _parts(self) -> tuple[Any, ...]:
        return "contiguous", self.capacity, 0, 0


class Paged(Store):
    """Pages of `page_size` rows, a power of 2 up to 4096, that forks share until one of them writes. Full pages can be
    found again by their ids.

    >>> fovea.CacheLayer(2, 64, store=fovea.Paged(16))
    fovea.CacheLayer(2, 64, store=fovea.Paged(16))
    """

    page_size: int = 64

    def _parts(self) -> tuple[Any, ...]:
        return "paged", self.page_size, 0, 0


class Ring(Store):
    """The first `sinks` rows and the last `window`, for a sliding window. `slack` rows more can be reserved at once,
    and be taken back.

    >>> fovea.CacheLayer(2, 64, store=fovea.Ring(window=4096, sinks=4))
    fovea.CacheLayer(2, 64, store=fovea.Ring(4096, 4))
    """

    window: int
    sinks: int = 0
    slack: int = 64

    def _parts(self) -> tuple[Any, ...]:
        return "ring", self.window, self.sinks, self.slack


class LastRow(Store):
    """The row of the last token alone, which the next one replaces: the state of a recurrence. Its layer has one head of
    as many elements as the state has, no values, and `replace` and `last_row` in place of `append` and `rows`. A
    sequence goes back to its beginning or to a checkpoint.

    >>> fovea.CacheLayer(1, 4 * 64 * 64, values="none", store=fovea.LastRow())
    fovea.CacheLayer(1, 16384, values='none', store=fovea.LastRow())
    """

    def _parts(self) -> tuple[Any, ...]:
        return "last_row", 0, 0, 0


class CacheLayer(Value):
    """The rows of one layer.

    Args:
        value_dim: None: head_dim; 0 beside values="none".
        dtype: of the rows as they are kept, "f32", "f64", "bf16" or "f16"; f32 is rounded to 16 bits when it is
            appended.
        values: "own"; "first_of_keys": a value is the first value_dim elements of its key (latent attention); "none".
        store: `Paged()`, `Contiguous()`, `Ring(window)`, or `LastRow()` for the state of a recurrence.

    >>> cache = fovea.KvCache([fovea.CacheLayer(num_kv_heads=8, head_dim=128, dtype="bf16")] * 32)
    >>> cache.bytes_per_row()
    131072
    """

    num_kv_heads: int
    head_dim: int
    value_dim: Optional[int] = None
    dtype: str = "f32"
    values: str = "own"
    store: Store = Paged()

    def _checked(self) -> "CacheLayer":
        """The same with plain numbers, which arrays of one number become. The engine checks what they are."""
        for name, allowed in (("dtype", _DTYPES), ("values", _VALUES)):
            given = getattr(self, name)
            if not isinstance(given, str) or given not in allowed:
                expected = " or ".join(f'"{text}"' for text in allowed)
                raise InvalidArgument("CacheLayer", name, expected, shown(given))
        if not isinstance(self.store, Store):
            expected = "Paged(), Contiguous(), Ring(window) or LastRow()"
            raise InvalidArgument("CacheLayer", "store", expected, shown(self.store))
        heads, dim = (whole(getattr(self, name), f"CacheLayer.{name}") for name in ("num_kv_heads", "head_dim"))
        value_dim = None if self.value_dim is None else whole(self.value_dim, "CacheLayer.value_dim")
        if value_dim is not None and value_dim < 0:
            raise InvalidArgument("CacheLayer", "value_dim", "a number of at least 0, or None", str(value_dim))
        return CacheLayer(heads, dim, value_dim, self.dtype, self.values, self.store._checked())

    def _given(self) -> tuple[Any, ...]:
        value_dim = -1 if self.value_dim is None else self.value_dim
        return (self.num_kv_heads, self.head_dim, value_dim, self.dtype, self.values, *self.store._parts())
