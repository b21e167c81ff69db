"""Masks: which keys a query may see. `a & b`, `a | b` and `~a` are masks too.

A query's position is counted in keys: its row + query_offset, by default key_len - query_len (aligned at the
end, as a cache of keys needs); 0 is the top-left form. `i` stands for it, `j` for the key's.
"""

from __future__ import annotations

import copy
import dataclasses
from typing import Any, Callable, Optional, Sequence, Union

from . import _core
from ._arrays import described, is_torch
from ._errors import InvalidArgument
from ._pickle import check_function
from ._value import Value, count, frozen, integers, shown

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


@dataclasses.dataclass(frozen=True)
class Sizes:
    """What a mask must know of a call."""

    batch: int
    heads: int
    query_len: int
    key_len: int
    query_offset: int
    # Functions are asked with tensors of PyTorch, as the query is one.
    tensors: bool = False


class Mask(Value):
    """What `mask=` takes, besides arrays and functions."""

    def _engine(self, sizes: Sizes) -> "_core.Mask":
        """The engine's mask for calls of these sizes."""
        try:
            return _core.Mask(self._text())
        except InvalidArgument as error:
            raise self._said(error) from None

    def _said(self, error: InvalidArgument) -> InvalidArgument:
        """What the reader of the text found wrong, in the words of who wrote a value."""
        own = type(self).__name__
        if error.function != "parse_mask":
            return error
        what, _, expected = error.expected.partition(" with ")
        argument, _, got = error.got.rpartition(" ")
        argument, _, remark = argument.partition(", ")
        if not expected or not argument:
            return InvalidArgument(own, ", ".join(self._fields()), error.expected, error.got)
        return InvalidArgument(own, argument, f"{expected} ({remark})" if remark else expected, got)

    def _text(self) -> str:
        raise NotImplementedError

    def _parts(self) -> "tuple[Mask, ...]":
        return ()

    # Binds as tightly as & (2), | (1), ~ (3) do; a name most of all.
    _strength = 4

    def __and__(self, other: "Mask") -> "Mask":
        return And(self, other) if isinstance(other, Mask) else NotImplemented

    def __or__(self, other: "Mask") -> "Mask":
        return Or(self, other) if isinstance(other, Mask) else NotImplemented

    def __invert__(self) -> "Mask":
        return Not(self)


# Hashing, comparing, printing and the engine go down a mask as deep as this, to as many parts: `m & m` twice is four.
_MOST_LEVELS, _MOST_PARTS = 100, 4096


def _count_parts(whole: Mask, *parts: Any) -> None:
    """Checks what stands beside & and |, and keeps how deep and how large the whole is."""
    name = type(whole).__name__
    levels, size = 0, 1
    for mask in parts:
        if not isinstance(mask, Mask):
            raise InvalidArgument(name, "a", "a mask of fovea", shown(mask))
        levels = max(levels, mask.__dict__.get("_levels", 0) + 1)
        size += mask.__dict__.get("_size", 1)
    if levels > _MOST_LEVELS or size > _MOST_PARTS:
        raise InvalidArgument(
            name,
            "a",
            f"a mask of at most {_MOST_LEVELS} levels and {_MOST_PARTS} parts: an array or a predicate holds more",
            f"{levels} levels of {size} parts",
        )
    object.__setattr__(whole, "_levels", levels)
    object.__setattr__(whole, "_size", size)


def _in_parentheses(mask: Mask, strength: int) -> str:
    return repr(mask) if mask._strength >= strength else f"({mask!r})"


class And(Mask):
    """Visible in both: what `a & b` makes."""

    a: Mask
    b: Mask
    _strength = 2

    def __post_init__(self) -> None:
        _count_parts(self, self.a, self.b)

    def _engine(self, sizes: Sizes) -> "_core.Mask":
        return self.a._engine(sizes) & self.b._engine(sizes)

    def _parts(self) -> tuple[Mask, ...]:
        return self.a, self.b

    def __repr__(self) -> str:
        return f"{_in_parentheses(self.a, 2)} & {_in_parentheses(self.b, 3)}"


class Or(Mask):
    """Visible in either: what `a | b` makes."""

    a: Mask
    b: Mask
    _strength = 1

    def __post_init__(self) -> None:
        _count_parts(self, self.a, self.b)

    def _engine(self, sizes: Sizes) -> "_core.Mask":
        return self.a._engine(sizes) | self.b._engine(sizes)

    def _parts(self) -> tuple[Mask, ...]:
        return self.a, self.b

    def __repr__(self) -> str:
        return f"{_in_parentheses(self.a, 1)} | {_in_parentheses(self.b, 2)}"


class Not(Mask):
    """Visible where the mask hides: what `~a` makes."""

    a: Mask
    _strength = 3

    def __post_init__(self) -> None:
        _count_parts(self, self.a)

    def _engine(self, sizes: Sizes) -> "_core.Mask":
        return ~self.a._engine(sizes)

    def _parts(self) -> tuple[Mask, ...]:
        return (self.a,)

    def __repr__(self) -> str:
        return f"~{_in_parentheses(self.a, 3)}"


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
    """i - lookback <= j <= i + lookahead: counts *other* tokens, the query's own position is always inside.

    Args:
        lookback: at least 0; None: no end to that side.
        lookahead: likewise.

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


class _Integers(Mask):
    """A mask that a list of whole numbers makes, a copy of the one given (but a tensor of KeyLengths)."""

    def __post_init__(self) -> None:
        for name, value in self._fields().items():
            object.__setattr__(self, name, frozen(value))

    def _list(self, values: Any, field: str, name: str) -> str:
        own = f"{type(self).__name__}.{field}"
        return f"{name}({','.join(count(n, own) for n in integers(values, own))})"


class GlobalTokens(_Integers):
    """These positions are seen by every query and, as queries, see every key (Beltagy et al. 2020, arXiv
    2004.05150).

    >>> fovea.SlidingWindow(2, 2) | fovea.GlobalTokens([0])
    fovea.SlidingWindow(2, 2) | fovea.GlobalTokens([0])
    """

    positions: Sequence[int]

    def _text(self) -> str:
        return self._list(self.positions, "positions", "global")


class StreamingSinks(Mask):
    """j < count: the first keys, at which a model that was trained without a window has learned to leave the
    weight it has no use for (Xiao et al. 2023, arXiv 2309.17453, section 3.2).

    >>> fovea.Causal() & (fovea.SlidingWindow(127) | fovea.StreamingSinks(4))
    fovea.Causal() & (fovea.SlidingWindow(127) | fovea.StreamingSinks())
    """

    count: int = 4

    def _text(self) -> str:
        return f"sinks({count(self.count, 'StreamingSinks.count')})"


class KeyLengths(_Integers):
    """j < lengths[b]: padded batches. Without lengths here, they come with each call of a plan.

    Args:
        lengths: [batch], each in [0, key_len], or None.

    >>> import numpy as np
    >>> two = [np.concatenate([x, x]) for x in (q, k, v)]
    >>> fovea.attention(*two, mask=fovea.KeyLengths([4, 2])).shape
    (2, 2, 4, 8)
    """

    lengths: Optional[Sequence[int]] = None

    def __post_init__(self) -> None:
        # A tensor comes with the call: a graph that torch.compile follows may not look into it.
        if not is_torch(self.lengths):
            super().__post_init__()

    def _text(self) -> str:
        return "lengths()" if self.lengths is None else self._list(self.lengths, "lengths", "lengths")


class Prefix(_Integers):
    """j < length or j <= i: a prefix that everybody sees, causal behind it (prefix LM; Raffel et al. 2020,
    arXiv 1910.10683).

    Args:
        lengths: one for all, or one a batch entry.

    >>> fovea.attention(q, k, None, mask=fovea.Prefix(2))[0, 0, 0] > 0
    array([ True,  True, False, False])
    """

    lengths: Union[int, Sequence[int]]

    def _text(self) -> str:
        lengths = self.lengths if hasattr(self.lengths, "__len__") else [self.lengths]
        return self._list(lengths, "lengths", "prefix")


class Documents(_Integers):
    """i and j lie in the same document; document d is [boundaries[d], boundaries[d + 1]), the cumulative
    lengths of packed sequences ("cu_seqlens").

    >>> mask = fovea.Causal() & fovea.Documents([0, 5, 9])
    """

    boundaries: Sequence[int]

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
    """j = i + n·step with -lookback <= n <= lookahead: a window with holes. None: no end to that side.

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
    """Bit (i // size, j // size) of a table; what lies outside it is hidden.

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
    """The block table of BigBird (Zaheer et al. 2020, arXiv 2007.14062): `window` blocks to either side, the
    first `global_blocks` seen by all and seeing all, and `random` more a row, drawn by `seed`.

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
    """j is i or an ancestor of i (speculative decoding, trees of thoughts).

    Args:
        parents: parents[n] <= n; a root is its own parent.

    >>> fovea.attention(q, k, None, mask=fovea.Tree([0, 0, 0, 1]))[0, 0, 3] > 0
    array([ True,  True, False,  True])
    """

    parents: Sequence[int]

    def _text(self) -> str:
        return self._list(self.parents, "parents", "tree")


class Groups(_Integers):
    """groups[j] <= groups[i]: bidirectional inside a group, causal from group to group. A
    vision-language-action policy has group 0 for image and instruction and one for each action.

    >>> fovea.attention(q, k, None, mask=fovea.Groups([0, 0, 1, 2]))[0, 0, 1] > 0
    array([ True,  True, False, False])
    """

    groups: Sequence[int]

    def _text(self) -> str:
        return self._list(self.groups, "groups", "groups")


# Sites that a predicate is asked for at a time: 4 MiB of truth values.
_MOST_SITES = 1 << 22
# A row keeps about 150 bytes and at most a bit a key; all sites take minutes.
_MOST_ROWS, _MOST_KEYS, _MOST_ASKED = 1 << 24, 1 << 28, 1 << 36


class Predicate(Mask):
    """Whatever a function says. It is asked once for each size of call, in blocks of whole index arrays, and
    its answers are kept, at most a bit a key, until the function itself is gone: calls pay for no Python.

    Args:
        visible: (batch, head, i, j) → truth values that broadcast to their common shape. The four are
            arrays of whole numbers with four axes, tensors where the query is one of PyTorch and NumPy's
            otherwise (`plan` too); i is in key coordinates. Asked again only for other sizes. A mask_mod of
            PyTorch's FlexAttention is such a function.

    >>> every_third = fovea.Predicate(lambda b, h, i, j: (i - j) % 3 == 0)
    >>> fovea.attention(q, k, v, mask=fovea.Causal() & every_third).shape
    (1, 2, 4, 8)
    """

    visible: Callable[[Any, Any, Any, Any], Any]

    def _engine(self, sizes: Sizes) -> "_core.Mask":
        if not callable(self.visible):
            raise InvalidArgument("Predicate", "visible", "a function (batch, head, i, j)", shown(self.visible))
        # No lock: the function is anybody's code, which may wait for other threads or fork. Threads that come
        # together may each ask.
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
        return type(self), (self.visible,)  # what it said can be asked again

    def __copy__(self) -> "Predicate":
        return self  # which also keeps what it said

    def __deepcopy__(self, memo: dict[int, Any]) -> "Predicate":
        return type(self)(copy.deepcopy(self.visible, memo))

    def _text(self) -> str:
        return f"predicate({getattr(self.visible, '__name__', type(self.visible).__name__)})"

    def _ask(self, sizes: Sizes) -> "_core.Mask":
        import numpy as np

        def asked(batch: Any, head: Any, begin: int, end: int) -> Any:
            i = np.arange(begin, end)[None, None, :, None] + sizes.query_offset
            j = np.arange(sizes.key_len)[None, None, None, :]
            said = self.visible(*_indices(sizes, batch, head, i, j))
            try:
                answer = np.asarray(said)
                if sizes.tensors and answer.dtype == np.uint8:
                    answer = answer.astype(np.bool_)  # NumPy's truth values of tensors come back as these
            except Exception:
                raise InvalidArgument("Predicate", "visible", "truth values", shown(said)) from None
            full = (batch.shape[0], head.shape[1], end - begin, sizes.key_len)
            if answer.dtype != np.bool_ or answer.ndim > 4 or not _broadcasts(answer.shape, full):
                raise InvalidArgument(
                    "Predicate",
                    "visible",
                    f"truth values that broadcast to {list(full)}",
                    f"{answer.dtype} {list(answer.shape)}",
                )
            # Axes that the answer does not depend on stay 1: batch entries and heads share the spans.
            shape = (1,) * (4 - answer.ndim) + answer.shape
            return np.broadcast_to(answer, (shape[0], shape[1], *full[2:]))

        def check(batch: int, heads: int) -> None:
            queries = batch * heads * sizes.query_len
            if queries > _MOST_ROWS or queries * sizes.key_len > _MOST_ASKED or sizes.key_len > _MOST_KEYS:
                raise InvalidArgument(
                    "Predicate",
                    "visible",
                    "at most 2^24 rows of 2^28 keys and 2^36 sites to ask for",
                    f"{[batch, heads, sizes.query_len, sizes.key_len]}",
                )

        check(1, 1)
        # Two entries and two heads show whether the answer depends on them.
        some = [np.arange(min(2, n)) for n in (sizes.batch, sizes.heads)]
        probe = asked(some[0][:, None, None, None], some[1][None, :, None, None], 0, min(1, sizes.query_len))
        batch, head = (
            1 if width == 1 else n for width, n in zip(probe.shape, (sizes.batch, sizes.heads))
        )
        check(batch, head)
        batches = np.arange(batch)[:, None, None, None]
        heads = np.arange(head)[None, :, None, None]
        rows = max(1, _MOST_SITES // max(1, sizes.key_len))
        spans = _core.PredicateRows()
        for b in range(len(batches)):
            for h in range(heads.shape[1]):
                for begin in range(0, sizes.query_len, rows):
                    end = min(begin + rows, sizes.query_len)
                    spans.append(asked(batches[b : b + 1], heads[:, h : h + 1], begin, end))
        return spans.finish(
            self._text()[10:-1],
            len(batches),
            heads.shape[1],
            sizes.query_offset,
            sizes.query_offset + sizes.query_len,
            sizes.key_len,
        )


def _indices(sizes: Sizes, *arrays: Any) -> tuple[Any, ...]:
    """In the library that the call is of: what was written for PyTorch asks methods of tensors of them, or
    compares them with tensors."""
    if not sizes.tensors:
        return arrays
    import torch

    return tuple(torch.from_numpy(x.astype("int64")) for x in arrays)


def _broadcasts(shape: Sequence[int], full: Sequence[int]) -> bool:
    return all(a in (1, b) for a, b in zip(reversed(shape), reversed(full)))


class ArrayMask(Mask):
    """j is visible where an array says so: what `mask=array` of truth values is, to be combined with others.

    Args:
        visible: truth values, [batch or 1, heads or 1, query_len or 1, key_len or 1], leading axes may be
            missing. Rows stand for queries, whatever their offset.

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
        shape = tuple(int(n) for n in getattr(self.visible, "shape", ()))
        if str(getattr(self.visible, "dtype", "")).rsplit(".", 1)[-1] != "bool" or len(shape) > 4:
            raise InvalidArgument(
                "attention", "mask", "truth values of at most 4 axes", described(self.visible)
            )
        if not _broadcasts(shape, wanted):
            raise InvalidArgument(
                "attention", "mask", f"truth values that broadcast to {list(wanted)}", described(self.visible)
            )
        four = self.visible.reshape((1,) * (4 - len(shape)) + shape)
        shape = tuple(four.shape)
        visible = four if shape[2:] == wanted[2:] else _expand(four, (*shape[:2], *wanted[2:]))
        return _core.mask_of_array(visible, sizes.query_offset)

    def _text(self) -> str:
        return "predicate(array)"


def _expand(array: Any, shape: Sequence[int]) -> Any:
    if hasattr(array, "expand"):
        return array.expand(*shape)
    import numpy as np

    return np.broadcast_to(np.asarray(array), shape)
