"""Masks of calls whose batch entries have different query offsets."""

from __future__ import annotations

from typing import Any, Callable

from . import _core
from ._errors import InvalidArgument
from ._mask import Sizes

__all__ = ["MOST_ROWS", "mask_by_entry"]

# A row takes about 150 bytes and at most one bit for each key.
MOST_ROWS = 1 << 24


def mask_by_entry(
    sizes: Sizes, name: str, heads: int, step: int, said: Callable[[int, int, int, int], Any]
) -> "_core.Mask":
    """The engine's mask has one row for each position from the smallest of any entry to the largest. Rows at
    positions where an entry has no query see nothing.

    Args:
        heads: 1, or all.
        step: how many rows to ask for at a time.
        said: a function (entry, head, begin, end) → truth values [1, 1, end - begin, key_len] of those rows of the
            entry.
    """
    first = min(sizes.query_offset, default=0)
    count = max(sizes.query_offset, default=0) - first + sizes.query_len
    if sizes.batch * heads * count > MOST_ROWS:
        raise InvalidArgument(
            "attention",
            "query_offset",
            f"offsets that are close to each other: the {name} keeps one row for each entry, head and position from the "
            "smallest offset to the largest, at most 2^24 rows in all",
            f"{sizes.batch * heads * count} rows",
        )
    rows = _core.PredicateRows()
    for entry, offset in enumerate(sizes.query_offset):
        for head in range(heads):
            rows.append_nothing(offset - first)
            own = sizes.rows_of(entry)
            for begin in range(0, own, step):
                rows.append(said(entry, head, begin, min(begin + step, own)))
            rows.append_nothing(count - own - (offset - first))
    return rows.finish(name, sizes.batch, heads, first, first + count, sizes.key_len)
