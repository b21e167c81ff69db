"""Where the entries of a call lie in its tensors, and where their queries stand among their keys."""

from __future__ import annotations

import dataclasses
from typing import Any, Optional

from ._arrays import described, library_of
from ._errors import InvalidArgument
from ._value import integer, integers

__all__ = ["Positions", "positions"]

_MOST_OFFSET = 1 << 30
_WHOLE = ("int64", "int32", "int16", "int8", "uint8")


@dataclasses.dataclass(frozen=True)
class Positions:
    """What a graph does not know yet is a tensor; `known` makes tuples of tensors."""

    # None: key_len - query_len; a number for all entries; or one each.
    offset: Any = None
    # Of a packed batch: where the rows of each entry begin, and the number of rows. None: entries are padded.
    query_starts: Any = None
    key_starts: Any = None

    @property
    def packed(self) -> bool:
        return self.query_starts is not None or self.key_starts is not None

    def known(self) -> "Positions":
        if all(x is None or isinstance(x, (int, tuple)) for x in (self.offset, self.query_starts, self.key_starts)):
            return self
        offset = _numbers(self.offset, "query_offset")
        if isinstance(offset, tuple):
            offset = tuple(map(_checked, offset))
        return Positions(
            offset, _numbers(self.query_starts, "query_starts"), _numbers(self.key_starts, "key_starts")
        )

    def lengths(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """(queries, keys) of each entry of a packed batch."""
        return _differences(self.query_starts), _differences(self.key_starts)

    def longest_keys(self, key_len: int) -> int:
        """How many columns returned weights have."""
        packed = self.packed and self.key_starts is not None  # a cache tells its own
        return max(_differences(self.known().key_starts), default=0) if packed else key_len

    def check(self, batch: int, query_len: int, key_len: Optional[int]) -> None:
        """Against the sizes of the operands; key_len is None where neither keys nor values tell it."""
        if self.packed:
            if self.query_starts is None or self.key_starts is None:
                missing = "query_starts" if self.query_starts is None else "key_starts"
                raise InvalidArgument("attention", missing, "starts of both queries and keys, or of neither", "None")
            if batch != 1:
                expected = "a batch of 1, with the rows of all entries, because query_starts is given"
                raise InvalidArgument("attention", "query", expected, f"a batch of {batch}")
            for name, starts, rows in (
                ("query_starts", self.query_starts, query_len),
                ("key_starts", self.key_starts, key_len),
            ):
                ascending = all(a <= b for a, b in zip(starts, starts[1:]))
                if not starts or starts[0] != 0 or (rows is not None and starts[-1] != rows) or not ascending:
                    expected = f"ascending numbers from 0{f' to the number of rows, {rows}' if rows is not None else ''}"
                    raise InvalidArgument("attention", name, expected, str(list(starts))[:80])
            batch = len(self.query_starts) - 1
            if len(self.key_starts) - 1 != batch:
                expected = f"as many starts as query_starts, {batch + 1}"
                raise InvalidArgument("attention", "key_starts", expected, str(len(self.key_starts)))
        if isinstance(self.offset, tuple) and len(self.offset) != batch:
            expected = f"as many offsets as batch entries, {batch}"
            raise InvalidArgument("attention", "query_offset", expected, str(len(self.offset)))

    def offsets(self) -> list[int]:
        """None, one for all entries, or one each, as a list."""
        offset = self.known().offset
        return [] if offset is None else list(offset) if isinstance(offset, tuple) else [offset]


def positions(query_offset: Any = None, query_starts: Any = None, key_starts: Any = None) -> Positions:
    return Positions(_offset(query_offset), _starts(query_starts, "query_starts"), _starts(key_starts, "key_starts"))


def _offset(query_offset: Any) -> Any:
    if query_offset is None:
        return None
    # A number is left as it came: in a graph it may stand for a size that is not known yet.
    if isinstance(query_offset, int) and not isinstance(query_offset, bool):
        return _checked(query_offset)
    if isinstance(query_offset, (list, tuple, range)) or len(getattr(query_offset, "shape", ())) == 1:
        if library_of(query_offset).deferred:
            return query_offset
        return tuple(map(_checked, integers(query_offset, "attention.query_offset")))
    return _checked(int(integer(query_offset, "attention.query_offset")))


def _starts(starts: Any, name: str) -> Any:
    if starts is None or library_of(starts).deferred:
        return starts
    return integers(starts, f"attention.{name}")


def _checked(offset: int) -> int:
    if not -_MOST_OFFSET <= offset <= _MOST_OFFSET:
        raise InvalidArgument("attention", "query_offset", "an offset within 2^30", str(offset))
    return offset


def _numbers(x: Any, name: str) -> Any:
    if x is None or isinstance(x, (int, tuple)):
        return x
    if str(x.dtype).rsplit(".", 1)[-1] not in _WHOLE or len(x.shape) != 1:
        raise InvalidArgument("attention", name, "a list of whole numbers", described(x))
    return tuple(x.tolist())


def _differences(starts: Optional[tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(b - a for a, b in zip(starts or (), (starts or ())[1:]))
