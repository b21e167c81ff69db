"""Masks: which keys a query may see. `a & b`, `a | b` and `~a` are masks too.

A query's position `i` is counted in keys: its row + query_offset. The default offset is key_len - query_len, which
aligns the last query with the last key, as a cache of keys needs; 0 aligns the first ones. `j` is the key's position.
"""

from __future__ import annotations

from typing import Any, Optional, Protocol, Sequence, Union

from ._array_mask import ArrayMask
from ._arrays import library_of
from ._errors import InvalidArgument
from ._mask import And as And, Mask, Not as Not, Or as Or
from ._predicate import Predicate
from ._value import count, frozen, integers, shown

__all__ = [
    "Mask",
    "Everything",
    "Causal",
    "SlidingWindow",
    "GlobalTokens",
    "StreamingSinks",
    "KeyLengths",
    "Prefix",
    "Documents",
    "Chunked",
    "Strided",
    "Dilated",
    "BlockTable",
    "BigBird",
    "Tree",
    "Groups",
    "Predicate",
    "ArrayMask",
]


class Everything(Mask):
    """Every key: what `mask=None` is.

    >>> fovea.attention(q, k, v, mask=fovea.Everything()).shape
    (1, 2, 4, 8)
    """

    def _text(self) -> str:
        return "everything"


class Causal(Mask):
    """j <= i.

    >>> fovea.attention(q, k, v, mask=fovea.Causal()).shape
    (1, 2, 4, 8)
    """

    def _text(self) -> str:
        return "causal"


class SlidingWindow(Mask):
    """i - lookback <= j <= i + lookahead. Both count *other* tokens; the query's own position is always inside.

    Args:
        lookback: at least 0; None: unlimited.
        lookahead: at least 0; None: unlimited.

    >>> fovea.Causal() & fovea.SlidingWindow(lookback=127)
    fovea.Causal() & fovea.SlidingWindow(127)
    """

    lookback: Optional[int] = 0
    lookahead: Optional[int] = None

    def _text(self) -> str:
        sides = (
            "all" if side is None else count(side, f"SlidingWindow.{name}")
            for name, side in self._fields().items()
        )
        return f"window({','.join(sides)})"


class _Listed(Protocol):
    """An array or a tensor."""

    def tolist(self) -> Any: ...


Integers = Union[Sequence[int], _Listed]


class _Integers(Mask):
    """A mask of a list of whole numbers. The list is copied, except a tensor for KeyLengths."""

    def __post_init__(self) -> None:
        for name, value in self._fields().items():
            given = tuple(value) if hasattr(value, "__next__") else value  # an iterator gives its numbers once
            object.__setattr__(self, name, frozen(given))

    def _list(self, values: Any, field: str, name: str) -> str:
        own = f"{type(self).__name__}.{field}"
        return f"{name}({','.join(count(n, own) for n in integers(values, own))})"


class GlobalTokens(_Integers):
    """These positions are seen by every query and, as queries, see every key (Beltagy et al. 2020, arXiv
    2004.05150).

    >>> fovea.SlidingWindow(2, 2) | fovea.GlobalTokens([0])
    fovea.SlidingWindow(2, 2) | fovea.GlobalTokens([0])
    """

    positions: Integers

    def _text(self) -> str:
        return self._list(self.positions, "positions", "global")


class StreamingSinks(Mask):
    """j < count: the first keys. A model that was trained without a window puts on them the weight that it has no use
    for (Xiao et al. 2023, arXiv 2309.17453, section 3.2).

    >>> fovea.Causal() & (fovea.SlidingWindow(127) | fovea.StreamingSinks(4))
    fovea.Causal() & (fovea.SlidingWindow(127) | fovea.StreamingSinks())
    """

    count: int = 4

    def _text(self) -> str:
        return f"sinks({count(self.count, 'StreamingSinks.count')})"


class KeyLengths(_Integers):
    """j < lengths[b], for padded batches. Without `lengths`, each call of a plan brings them.

    Args:
        lengths: [batch], each in [0, key_len], or None.

    >>> import numpy as np
    >>> two = [np.concatenate([x, x]) for x in (q, k, v)]
    >>> fovea.attention(*two, mask=fovea.KeyLengths([4, 2])).shape
    (2, 2, 4, 8)
    """

    lengths: Optional[Integers] = None

    def __post_init__(self) -> None:
        # A placeholder of a graph has no values yet, so it is kept as it is and passed with the call.
        if not library_of(self.lengths).deferred:
            super().__post_init__()

    def _text(self) -> str:
        return "lengths()" if self.lengths is None else self._list(self.lengths, "lengths", "lengths")


class Prefix(_Integers):
    """j < length or j <= i: every query sees the prefix, and keys after it are causal (prefix LM; Raffel et al. 2020,
    arXiv 1910.10683).

    Args:
        lengths: one number for all batch entries, or one for each.

    >>> fovea.attention(q, k, None, mask=fovea.Prefix(2))[0, 0, 0] > 0
    array([ True,  True, False, False])
    """

    lengths: Union[int, Integers]

    def _text(self) -> str:
        lengths = self.lengths if hasattr(self.lengths, "__len__") else [self.lengths]
        if not lengths:
            raise InvalidArgument("Prefix", "lengths", "a number, or one for each batch entry", "none")
        return self._list(lengths, "lengths", "prefix")


class Documents(_Integers):
    """i and j lie in the same document. Document d is [boundaries[d], boundaries[d + 1]): `boundaries` are the
    cumulative lengths of packed sequences ("cu_seqlens").

    >>> mask = fovea.Causal() & fovea.Documents([0, 5, 9])
    """

    boundaries: Integers

    def _text(self) -> str:
        return self._list(self.boundaries, "boundaries", "documents")


class Chunked(Mask):
    """i // size == j // size.

    >>> fovea.attention(q, k, None, mask=fovea.Chunked(2))[0, 0, 3] > 0
    array([False, False,  True,  True])
    """

    size: int

    def _text(self) -> str:
        return f"chunked({count(self.size, 'Chunked.size')})"


class Strided(Mask):
    """(i - j) % stride == 0 (Child et al. 2019, arXiv 1904.10509).

    >>> fovea.attention(q, k, None, mask=fovea.Strided(2))[0, 0, 3] > 0
    array([False,  True, False,  True])
    """

    stride: int

    def _text(self) -> str:
        return f"strided({count(self.stride, 'Strided.stride')})"


class Dilated(Mask):
    """j = i + n·step with -lookback <= n <= lookahead: a window with holes. None: unlimited.

    >>> fovea.attention(q, k, None, mask=fovea.Dilated(1, 0, step=2))[0, 0, 3] > 0
    array([False,  True, False,  True])
    """

    lookback: Optional[int] = 0
    lookahead: Optional[int] = None
    step: int = 1

    def _text(self) -> str:
        sides = (
            "all" if side is None else count(side, f"Dilated.{name}")
            for name, side in self._fields().items()
        )
        return f"dilated({','.join(sides)})"


class BlockTable(Mask):
    """Entry (i // size, j // size) of a table; positions outside the table are hidden.

    Args:
        size: of a block.
        visible: [rows, columns] of truth values.

    >>> fovea.attention(q, k, None, mask=fovea.BlockTable(2, [[1, 0], [1, 1]]))[0, 0, 0] > 0
    array([ True,  True, False, False])
    """

    size: int
    visible: Sequence[Sequence[bool]]

    def __post_init__(self) -> None:
        object.__setattr__(self, "visible", frozen(self.visible))

    def _text(self) -> str:
        rows = self.visible.tolist() if hasattr(self.visible, "tolist") else self.visible
        try:
            columns = len(rows[0]) if len(rows) else 0
            bits = [str(int(bool(bit))) for row in rows for bit in row]
            if len(bits) != columns * len(rows):
                raise TypeError
        except (TypeError, IndexError):
            raise InvalidArgument(
                "BlockTable", "visible", "[rows, columns] of truth values", shown(self.visible)
            ) from None
        return f"blocks({','.join([count(self.size, 'BlockTable.size'), str(columns), *bits])})"


class BigBird(Mask):
    """The block table of BigBird (Zaheer et al. 2020, arXiv 2007.14062). A block sees `window` blocks to either side
    and `random` more, drawn by `seed`. The first `global_blocks` see all blocks and are seen by all.

    Args:
        length: of queries and of keys.
        size: of a block.

    >>> fovea.attention(q, k, v, mask=fovea.BigBird(4, size=2, random=1)).shape
    (1, 2, 4, 8)
    """

    length: int
    size: int = 64
    window: int = 1
    global_blocks: int = 1
    random: int = 3
    seed: int = 0

    def _text(self) -> str:
        numbers = (count(x, f"BigBird.{name}") for name, x in self._fields().items())
        return f"bigbird({','.join(numbers)})"


class Tree(_Integers):
    """j is i or an ancestor of i (speculative decoding, trees of thoughts). Positions outside the list see nothing
    and are not seen.

    Args:
        parents: parents[n] <= n; a root is its own parent.

    >>> fovea.attention(q, k, None, mask=fovea.Tree([0, 0, 0, 1]))[0, 0, 3] > 0
    array([ True,  True, False,  True])
    """

    parents: Integers

    def _text(self) -> str:
        return self._list(self.parents, "parents", "tree")


class Groups(_Integers):
    """groups[j] <= groups[i]: bidirectional inside a group, causal between groups. A vision-language-action policy
    has group 0 for image and instruction, and one group for each action. Positions outside the list see nothing and
    are not seen.

    >>> fovea.attention(q, k, None, mask=fovea.Groups([0, 0, 1, 2]))[0, 0, 1] > 0
    array([ True,  True, False, False])
    """

    groups: Integers

    def _text(self) -> str:
        return self._list(self.groups, "groups", "groups")
