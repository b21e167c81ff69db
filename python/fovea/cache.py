"""Keys and values of sequences, kept between calls."""

from __future__ import annotations

import os
from typing import Any, Iterator, NamedTuple, Optional, Sequence as Many, Union, overload

from . import _core
from ._arrays import check_unmasked, dtype_name, library_of, others
from ._engine import seen
from ._errors import InvalidArgument, named
from ._value import check_no_gradient, integer, integers, shown
from .stores import CacheLayer, whole

__all__ = [
    "CacheBytes",
    "KvCache",
    "LayerOfCache",
    "Sequence",
    "SequenceBytes",
]

_NO_LIMIT = (1 << 63) - 1
Path = Union[str, bytes, "os.PathLike[str]", "os.PathLike[bytes]"]


class CacheBytes(NamedTuple):
    """Bytes of the rows of a cache."""

    # Held by a sequence or a call, or kept for find_prefix.
    used: int
    # Of those, in pages that are only kept for find_prefix.
    prefixes: int
    # Of those used, in pages that lie in a mapped file.
    mapped: int
    # In pages that are kept for the next reserve.
    free: int


class SequenceBytes(NamedTuple):
    """Bytes of the rows of a sequence, and of those the ones that others hold too."""

    used: int
    shared: int


Sequence = _core.Sequence


class LayerOfCache:
    """One layer of a cache, `cache[layer]`: what `attention` takes as `cache=`."""

    def __init__(self, cache: "KvCache", number: int):
        self.cache, self.number = cache, number

    @property
    def spec(self) -> CacheLayer:
        """Its `CacheLayer`."""
        return self.cache.layers[self.number]

    def __repr__(self) -> str:
        return f"<layer {self.number} of a fovea.KvCache, {self.spec}>"

    def _views(self, sequences: Any, function: str) -> list[Any]:
        given = sequences_of(sequences, function)
        try:
            views = [self.cache._core.view(self.number, one) for one in given]
        except InvalidArgument as error:
            argument = {"sequence": "sequences", "layer": "cache"}.get(error.argument, error.argument)
            raise InvalidArgument(function, argument, error.expected, error.got) from None
        if not views:
            raise InvalidArgument(function, "sequences", "one sequence or more", "none")
        return views


class KvCache:
    """Keys and values of any number of sequences in every layer of a model.

    A sequence grows in three steps: `reserve` takes the memory for its next rows, `append` writes them layer by layer,
    and `commit` makes them part of the sequence. Rows that were not committed are dropped by the next `reserve`, so an
    exception in between leaves the sequence as it was. The rows of a sequence are given back when it is deleted.

    Args:
        layers: a sequence of `CacheLayer`.
        limit_bytes: of all rows together; None: no limit. A call that would pass it raises `CacheFull`.
        prefix_bytes: of full pages that no sequence holds any more, and that `start(ids)` may still find.

    One thread at a time may use a sequence; different sequences may be used by different threads.

    >>> import numpy as np
    >>> cache = fovea.KvCache([fovea.CacheLayer(num_kv_heads=2, head_dim=8)])
    >>> sequence = cache.start()
    >>> rows = np.ones((1, 2, 5, 8), np.float32)
    >>> cache.reserve(sequence, 5)
    >>> cache.append(0, sequence, rows, rows)
    >>> fovea.attention(rows, cache=cache[0], sequences=[sequence], mask=fovea.Causal()).shape
    (1, 2, 5, 8)
    >>> cache.commit(sequence)
    >>> cache.length(sequence)
    5
    """

    def __init__(self, layers: Many[CacheLayer], limit_bytes: Optional[int] = None, prefix_bytes: int = 0):
        try:
            given = [layers] if isinstance(layers, CacheLayer) else list(layers)
        except TypeError:
            raise InvalidArgument("KvCache", "layers", "a list of fovea.CacheLayer", shown(layers)) from None
        for n, layer in enumerate(given):
            if not isinstance(layer, CacheLayer):
                raise InvalidArgument("KvCache", f"layers[{n}]", "a fovea.CacheLayer", shown(layer))
        self.layers = tuple(layer._checked() for layer in given)
        self._core = _core.KvCache(
            [layer._given() for layer in self.layers],
            _NO_LIMIT if limit_bytes is None else whole(limit_bytes, "KvCache.limit_bytes"),
            whole(prefix_bytes, "KvCache.prefix_bytes"),
        )

    def __len__(self) -> int:
        """The number of layers."""
        return len(self.layers)

    def __getitem__(self, layer: int) -> LayerOfCache:
        number = whole(layer, "KvCache.layer")
        if not 0 <= number < len(self.layers):
            raise IndexError(f"KvCache: layer: expected a number from 0 to {len(self.layers) - 1}, got {number}")
        return LayerOfCache(self, number)

    def __iter__(self) -> Iterator[LayerOfCache]:
        """Its layers, in their order."""
        return (LayerOfCache(self, number) for number in range(len(self.layers)))

    def __repr__(self) -> str:
        return f"<fovea.KvCache of {len(self.layers)} layers, {self.bytes().used} bytes used>"

    def start(self, ids: Any = None, salt: int = 0) -> Sequence:
        """An empty sequence; with ids one that shares the pages of the longest prefix of them that the cache knows.
        `length` says how many rows that is: a multiple of the page size, and less than len(ids). Sequences share pages
        only with those that were started with the same salt."""
        return self._core.start(_ids(ids, "KvCache.start"), _salt(salt, "KvCache.start"))

    def fork(self, sequence: Sequence) -> Sequence:
        """A copy of the committed rows. It costs a reference; who of the two writes first copies the last page."""
        return self._core.fork(_one(sequence, "KvCache.fork"))

    def release(self, sequence: Sequence) -> None:
        """Gives the rows back now; the sequence is empty afterwards, and every function refuses it."""
        self._core.release(_one(sequence, "KvCache.release"))

    def length(self, sequence: Sequence) -> int:
        """Committed rows: the position of the next row."""
        return self._core.length(_one(sequence, "KvCache.length"))

    def pending(self, layer: int, sequence: Sequence) -> int:
        """Rows of `layer` that are appended and not committed."""
        return self._core.pending(whole(layer, "KvCache.pending.layer"), _one(sequence, "KvCache.pending"))

    def ids(self, sequence: Sequence) -> list[int]:
        """The ids that were committed, up to the first row without one."""
        return self._core.ids(_one(sequence, "KvCache.ids"))

    def reserve(self, sequence: Sequence, rows: int) -> None:
        """Makes room for `rows` rows behind the committed ones in every layer, and drops pending rows. Raises
        CacheFull; nothing has changed then."""
        self._core.reserve(_one(sequence, "KvCache.reserve"), whole(rows, "KvCache.reserve.rows"))

    def append(self, layer: int, sequences: Any, key: Any, value: Any = None) -> None:
        """Writes rows behind those that `layer` has.

        Args:
            sequences: a sequence; or a list of them, one for each entry of the batch.
            key: [batch, num_kv_heads, rows, head_dim], in the layer's dtype or f32.
            value: [batch, num_kv_heads, rows, value_dim]; None where the layer has none of its own.
        """
        given = sequences_of(sequences, "KvCache.append")
        arrays = [_handed(x, name, "KvCache.append") for name, x in (("key", key), ("value", value))]
        self._core.append(whole(layer, "KvCache.append.layer"), given, *arrays)

    def replace(self, layer: int, sequences: Any, rows: Any) -> None:
        """Writes the rows of a layer whose store is `LastRow`, in place of those before; `commit` makes them part of
        the sequences. They are the rows behind all tokens that `reserve` made room for.

        Args:
            sequences: a sequence; or a list of them, one for each entry of `rows`.
            rows: [sequences, ...] with head_dim elements for each sequence, in the layer's dtype: the final states of
                a call of `recurrence`, as they are.

        >>> import numpy as np
        >>> layer = fovea.CacheLayer(1, 2 * 8 * 8, values="none", store=fovea.LastRow())
        >>> cache = fovea.KvCache([layer])
        >>> sequence = cache.start()
        >>> for step in range(2):
        ...     before = cache.last_row(0, sequence).reshape(1, 2, 8, 8)
        ...     out, after = fovea.recurrence(q, k, v, initial_state=before, return_state=True)
        ...     cache.reserve(sequence, q.shape[2])
        ...     cache.replace(0, sequence, after)
        ...     cache.commit(sequence)
        >>> cache.length(sequence)
        8
        """
        given, handed = sequences_of(sequences, "KvCache.replace"), _handed(rows, "rows", "KvCache.replace")
        self._core.replace(whole(layer, "KvCache.replace.layer"), given, handed)

    def last_row(self, layer: int, sequences: Any, like: Any = None) -> Any:
        """Copies of the committed rows of a layer whose store is `LastRow`: [sequences, head_dim], zeros for a sequence
        of no tokens. `like` is an array of the library in which the copies are wanted; None: NumPy. bf16 needs it."""
        number, given = whole(layer, "KvCache.last_row.layer"), sequences_of(sequences, "KvCache.last_row")
        if not 0 <= number < len(self.layers):
            expected = f"a number from 0 to {len(self.layers) - 1}"
            raise InvalidArgument("KvCache.last_row", "layer", expected, str(number))
        spec = self.layers[number]
        library = _library_for(spec, like, "KvCache.last_row")
        made = library.empty((len(given), spec.head_dim), spec.dtype, like)
        made[...] = 0
        self._core.last_rows(number, given, library.handed({"rows": made})["rows"])
        return made

    def commit(self, sequence: Sequence, ids: Any = None) -> None:
        """Makes the pending rows part of the sequence. `ids` has one number a row; rows without ids end what
        `find_prefix` can find."""
        self._core.commit(_one(sequence, "KvCache.commit"), _ids(ids, "KvCache.commit"))

    def rollback(self, sequence: Sequence) -> None:
        """Drops pending rows."""
        self._core.rollback(_one(sequence, "KvCache.rollback"))

    def truncate(self, sequence: Sequence, length: int) -> None:
        """Drops the rows from position `length` on, and pending rows. A Ring goes back at most `slack` rows, or to a
        checkpoint."""
        self._core.truncate(_one(sequence, "KvCache.truncate"), whole(length, "KvCache.truncate.length"))

    def checkpoint(self, sequence: Sequence) -> None:
        """Makes `truncate` to the present length possible from any later length."""
        self._core.checkpoint(_one(sequence, "KvCache.checkpoint"))

    def drop(self, sequence: Sequence, ranges: Any) -> None:
        """Gives back the pages of Paged that lie inside ranges of positions, ascending pairs (begin, end). A mask must
        hide what was dropped. Other rows stay."""
        try:
            pairs = [(begin, end) for begin, end in ranges]
        except (TypeError, ValueError):
            raise InvalidArgument("KvCache.drop", "ranges", "pairs of positions (begin, end)", shown(ranges)) from None
        places = [(whole(begin, "KvCache.drop.ranges"), whole(end, "KvCache.drop.ranges")) for begin, end in pairs]
        self._core.drop(_one(sequence, "KvCache.drop"), places)

    def keep(self, sequence: Sequence, path: Any) -> None:
        """Of the pending rows keeps those at `path`, ascending indices from 0, and drops the others: a path in a tree
        of drafts."""
        self._core.keep(_one(sequence, "KvCache.keep"), list(integers(path, "KvCache.keep.path")))

    def permute(self, sequences: Many[Sequence], indices: Any) -> None:
        """Beam search: sequence i becomes a fork of what sequence indices[i] was. The list keeps its objects."""
        given, places = sequences_of(sequences, "KvCache.permute"), list(integers(indices, "KvCache.permute.indices"))
        first: dict[int, int] = {}
        for n, one in enumerate(given):
            if first.setdefault(id(one), n) != n:
                got = f"sequence {first[id(one)]} again"
                raise InvalidArgument("KvCache.permute", f"sequences[{n}]", "a sequence of its own (fork it)", got)
        self._core.permute(given, places)

    def find_prefix(self, ids: Any, salt: int = 0) -> int:
        """How many of `ids` start(ids, salt) would share."""
        return self._core.find_prefix(_ids(ids, "KvCache.find_prefix"), _salt(salt, "KvCache.find_prefix"))

    @overload
    def bytes(self) -> CacheBytes: ...

    @overload
    def bytes(self, sequence: Sequence) -> SequenceBytes: ...

    def bytes(self, sequence: Optional[Sequence] = None) -> Union[CacheBytes, SequenceBytes]:
        """Bytes of the whole cache, or of a sequence."""
        if sequence is None:
            return CacheBytes(*self._core.bytes())
        return SequenceBytes(*self._core.bytes_of(_one(sequence, "KvCache.bytes")))

    def bytes_per_row(self) -> int:
        """Bytes of one row in all layers, where rows are not shared."""
        return self._core.bytes_per_row()

    @named("KvCache.rows", "KvCache.view")
    def rows(self, layer: int, sequences: Any, like: Any = None) -> tuple[Any, Any]:
        """Copies of the rows of one layer, pending ones included.

        Args:
            sequences: a sequence, or a list of sequences that have the same number of rows.
            like: an array of the library in which the copies are wanted; None: NumPy. bf16 needs it.

        Returns:
            key [sequences, num_kv_heads, length, head_dim] and value [sequences, num_kv_heads, length, value_dim]; the
            value is None where value_dim is 0. Rows that are not kept are 0.
        """
        number = whole(layer, "KvCache.rows.layer")
        views = [self._core.view(number, one) for one in sequences_of(sequences, "KvCache.rows")]
        lengths = sorted({view.length for view in views})
        if len(lengths) != 1:
            raise InvalidArgument("KvCache.rows", "sequences", "sequences of one length, one or more", str(lengths))
        spec = self.layers[number]
        library = _library_for(spec, like, "KvCache.rows")
        value_dim = spec.head_dim if spec.value_dim is None else spec.value_dim
        dims = (spec.head_dim, 0 if spec.values == "none" else value_dim)
        made = {}
        for name, dim in zip(("key", "value"), dims):
            if dim:
                made[name] = library.empty((len(views), spec.num_kv_heads, lengths[0], dim), spec.dtype, like)
                made[name][...] = 0
        handed = library.handed(made)
        _core.gather(views, 0, handed["key"], handed.get("value"))
        return made["key"], made.get("value")

    @named("KvCache.save", "KvCache.fork")
    def save(self, sequence: Sequence, path: Path, note: str = "") -> None:
        """Writes the committed rows and ids of a sequence into a file, so that a crash leaves the old file or the new
        one. Checkpoints are part of it, pending rows are not.

        Args:
            note: at most 64 KiB, such as a fingerprint of the model, without which `load` refuses the file.

        Raises:
            FileError: the file cannot be written.
        """
        self._core.save(_one(sequence, "KvCache.save"), _path(path, "KvCache.save"), _text(note, "KvCache.save"))

    def load(
        self, path: Path, note: str = "", salt: int = 0, memory: str = "copied"
    ) -> Sequence:
        """A sequence with the rows of a file, which gives the bits that the saved one gives.

        Args:
            note: that of `save`.
            salt: full pages with ids can be found by start(ids, salt), so a file of unknown origin needs a salt of its
                own.
            memory: "copied", or "mapped": full pages lie in the file, mapped read-only, and are copied before the
                sequence writes to them. If another program cuts a mapped file in place, the process ends.

        Raises:
            FileError: a damaged file, or one of a cache with other layers.
            CacheFull: there is no room.
        """
        if not isinstance(memory, str) or memory not in ("copied", "mapped"):
            raise InvalidArgument("KvCache.load", "memory", '"copied" or "mapped"', shown(memory))
        salt = _salt(salt, "KvCache.load")
        return self._core.load(_path(path, "KvCache.load"), _text(note, "KvCache.load"), salt, memory == "mapped")


def _library_for(spec: CacheLayer, like: Any, function: str) -> Any:
    """The library in which copies of rows are wanted."""
    if like is None and spec.dtype == "bf16":
        raise InvalidArgument(function, "like", "an array of bf16, because NumPy has no such dtype", "None")
    if like is not None and dtype_name(like, "like", function) != spec.dtype:
        raise InvalidArgument(function, "like", f"an array of {spec.dtype}", shown(like))
    return others() if like is None else library_of(like)


def _handed(x: Any, name: str, function: str) -> Any:
    """An array as the engine takes it."""
    x = seen(x)
    if x is None:
        return None
    library = library_of(x)
    check_unmasked(function, name, x)
    check_no_gradient(function, name, x, " (detach it): a cache has none")
    return library.handed({name: library.operand(x)})[name]


def _salt(x: Any, function: str) -> int:
    number = int(integer(x, f"{function}.salt", bits=64))
    if number < 0:
        raise InvalidArgument(function, "salt", "a number in [0, 2^64)", shown(x))
    return number


def _ids(ids: Any, function: str) -> list[int]:
    found = [] if ids is None else list(integers(ids, f"{function}.ids"))
    if not all(-1 << 31 <= n < 1 << 31 for n in found):
        raise InvalidArgument(function, "ids", "numbers of 32 bits", shown(ids))
    return found


def _text(x: Any, function: str) -> str:
    try:
        return str.encode(x).decode()
    except (TypeError, UnicodeEncodeError):
        raise InvalidArgument(function, "note", "a string of Unicode characters", shown(x)) from None


def _path(x: Any, function: str) -> bytes:
    try:
        path = os.fsencode(x)
    except (TypeError, UnicodeEncodeError):
        raise InvalidArgument(function, "path", "the path of a file", shown(x)) from None
    if b"\0" in path:
        raise InvalidArgument(function, "path", "a path without NUL", shown(x))
    return path


def _one(x: Any, function: str) -> Sequence:
    if not isinstance(x, Sequence):
        raise InvalidArgument(function, "sequence", "a sequence of this cache, by start, fork or load", shown(x))
    return x


def sequences_of(x: Any, function: str) -> list[Any]:
    if isinstance(x, Sequence):
        return [x]
    try:
        found = list(x)
    except TypeError:
        raise InvalidArgument(function, "sequences", "a sequence of this cache or a list of them", shown(x)) from None
    for n, one in enumerate(found):
        if not isinstance(one, Sequence):
            raise InvalidArgument(function, f"sequences[{n}]", "a sequence of this cache", shown(one))
    return found
