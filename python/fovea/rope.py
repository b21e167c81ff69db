"""Rotary position embeddings (Su et al. 2021, arXiv 2104.09864): queries and keys are rotated by angles proportional
to their positions, before `attention` or when keys enter a cache."""

from __future__ import annotations

import functools
from typing import Any, ClassVar, Optional, Union

from . import _core
from ._arrays import compute_dtype, described, dtype_name, library_of
from ._errors import InvalidArgument
from ._value import Value, frozen, integer, integers, number, shown, truth

__all__ = [
    "Rope",
    "RopeTables",
    "RopeScaling",
    "LinearScaling",
    "NtkScaling",
    "DynamicNtkScaling",
    "YarnScaling",
    "Llama3Scaling",
    "LongRopeScaling",
    "rotate",
]


class RopeScaling(Value):
    """The base class of scalings, for `Rope(scaling=)`.

    >>> isinstance(fovea.LinearScaling(2), fovea.RopeScaling)
    True
    """

    _name: ClassVar[str] = ""

    def _text(self) -> str:
        texts = [
            integer(x, f"{type(self).__name__}.{field}")
            if field == "original_max_positions"
            else number(x, f"{type(self).__name__}.{field}")
            for field, x in self._fields().items()
        ]
        return f"{self._name}({','.join(texts)})"


class LinearScaling(RopeScaling):
    """Position interpolation: every frequency divided by `factor`, at least 1 (Chen et al. 2023, arXiv 2306.15595).

    >>> near = fovea.rotate(q, fovea.Rope(8), positions=[0, 1, 2, 3])
    >>> far = fovea.rotate(q, fovea.Rope(8, scaling=fovea.LinearScaling(2)), positions=[0, 2, 4, 6])
    >>> bool(abs(near - far).max() < 1e-6)
    True
    """

    factor: float
    _name = "linear"


class NtkScaling(RopeScaling):
    """base · factor^(d / (d - 2)): the frequency of the slowest pair is divided by `factor`, that of the fastest is
    unchanged (Peng et al. 2023, arXiv 2309.00071, section 3.1).

    >>> fovea.rotate(q, fovea.Rope(8, scaling=fovea.NtkScaling(4))).shape
    (1, 2, 4, 8)
    """

    factor: float
    _name = "ntk"


class DynamicNtkScaling(RopeScaling):
    """NtkScaling that grows with a sequence's length beyond the training's. Queries and keys must be rotated with the
    same `sequence_len`.

    >>> rope = fovea.Rope(8, scaling=fovea.DynamicNtkScaling(2, original_max_positions=16))
    >>> bool((fovea.rotate(q, rope, sequence_len=16) == fovea.rotate(q, fovea.Rope(8))).all())
    True
    """

    factor: float
    original_max_positions: int
    _name = "dynamic"


class YarnScaling(RopeScaling):
    """YaRN (Peng et al. 2023): frequencies of pairs that turn more than `beta_fast` times within the original
    positions are unchanged. Those with fewer than `beta_slow` turns are divided by `factor`, and between the two is a
    linear ramp.

    Args:
        attention_factor: multiplies cos and sin; None: 0.1 ln(factor) + 1.
        exact: the ends of the ramp are not rounded to whole pairs (gpt-oss).

    >>> fovea.rotate(q, fovea.Rope(8, scaling=fovea.YarnScaling(4, 32))).shape
    (1, 2, 4, 8)
    """

    factor: float
    original_max_positions: int
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: Optional[float] = None
    exact: bool = False
    _name = "yarn"

    def _text(self) -> str:
        parts = [
            number(self.factor, "YarnScaling.factor"),
            integer(self.original_max_positions, "YarnScaling.original_max_positions"),
            f"beta_fast={number(self.beta_fast, 'YarnScaling.beta_fast')}",
            f"beta_slow={number(self.beta_slow, 'YarnScaling.beta_slow')}",
        ]
        if self.attention_factor is not None:
            parts.append(f"attention={number(self.attention_factor, 'YarnScaling.attention_factor')}")
        return f"yarn({','.join(parts + (['exact'] if self.exact else []))})"


class Llama3Scaling(RopeScaling):
    """Llama 3.1: frequencies of short wavelengths are unchanged, those of long ones are divided by `factor`.

    >>> fovea.rotate(q, fovea.Rope(8, scaling=fovea.Llama3Scaling(8, 1, 4, 8192))).shape
    (1, 2, 4, 8)
    """

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_positions: int
    _name = "llama3"


class LongRopeScaling(RopeScaling):
    """LongRoPE (Ding et al. 2024, arXiv 2402.13753), of Phi-3: the frequency of pair n is divided by
    `short_factors[n]` in sequences of at most `original_max_positions`, and by `long_factors[n]` in longer ones.
    Queries and keys must be rotated with `sequence_len`s of the same kind.

    Args:
        short_factors: a number above 0 for each of the rotary_dim / 2 pairs.
        long_factors: likewise.
        attention_factor: multiplies cos and sin.

    >>> longrope = fovea.LongRopeScaling(16, [1, 1, 1, 1], [1, 2, 3, 4])
    >>> bool((fovea.rotate(q, fovea.Rope(8, scaling=longrope)) == fovea.rotate(q, fovea.Rope(8))).all())
    True
    """

    original_max_positions: int
    short_factors: Any
    long_factors: Any
    attention_factor: float = 1.0

    def __post_init__(self) -> None:
        for name in ("short_factors", "long_factors"):
            object.__setattr__(self, name, frozen(getattr(self, name)))

    def _text(self) -> str:
        parts = [integer(self.original_max_positions, "LongRopeScaling.original_max_positions")]
        for name, factors in (("short", self.short_factors), ("long", self.long_factors)):
            argument = f"LongRopeScaling.{name}_factors"
            if not isinstance(factors, tuple) or not factors:
                raise InvalidArgument("LongRopeScaling", f"{name}_factors", "a sequence of numbers", shown(factors))
            parts.append(f"{name}({','.join(number(factor, argument) for factor in factors)})")
        parts.append(f"attention={number(self.attention_factor, 'LongRopeScaling.attention_factor')}")
        return f"longrope({','.join(parts)})"


class Rope(Value):
    """Rotates pair n of `rotary_dim / 2` by position · base^(-2n / rotary_dim).

    Args:
        rotary_dim: how many elements of a head are rotated, even; the others are unchanged.
        base: "theta", above 1.
        interleaved: pairs are elements 2n and 2n + 1 (GPT-J, DeepSeek), not n and n + rotary_dim / 2 (Llama,
            GPT-NeoX).
        scaling: a RopeScaling, or None.

    >>> fovea.Rope(64, scaling=fovea.Llama3Scaling(8, 1, 4, 8192))
    fovea.Rope(64, scaling=fovea.Llama3Scaling(8, 1, 4, 8192))
    """

    rotary_dim: int
    base: float = 10000.0
    interleaved: bool = False
    scaling: Optional[RopeScaling] = None

    def _text(self) -> str:
        parts = [integer(self.rotary_dim, "Rope.rotary_dim"), f"base={number(self.base, 'Rope.base')}"]
        parts.append("interleaved" if truth(self.interleaved, "Rope.interleaved") else "half")
        if self.scaling is not None:
            if not isinstance(self.scaling, RopeScaling):
                raise InvalidArgument("Rope", "scaling", "a RopeScaling of fovea, or None", repr(self.scaling))
            parts.append(self.scaling._text())
        return f"rope({','.join(parts)})"


class RopeTables(Value):
    """Cosines and sines for `rotate`, for a model that has its own tables.

    Args:
        cos: [positions, rotary_dim / 2], or [batch, positions, rotary_dim / 2] if every batch entry has its own.
            Numbers of any dtype, read as f32 (as f64 for an x of f64). Of a table that holds every number twice, as
            those of transformers do, pass half: `cos[..., : rotary_dim // 2]`.
        sin: in the shape of cos.
        interleaved: as in `Rope`.

    >>> import numpy as np
    >>> angles = np.arange(16)[:, None] * 10000.0 ** (-np.arange(4) / 4)
    >>> tables = fovea.RopeTables(np.cos(angles), np.sin(angles))
    >>> bool(abs(fovea.rotate(q, tables, 3) - fovea.rotate(q, fovea.Rope(8), 3)).max() < 1e-6)
    True
    """

    cos: Any
    sin: Any
    interleaved: bool = False


# The limit of a table: 4 GiB of f32, cosines and sines together.
_MOST_TABLE = 1 << 30


@functools.lru_cache(maxsize=32)
def table(rope: str, positions: int, dtype: str) -> "_core.RopeTable":
    """The table of a rope, given as text, for arrays of this dtype."""
    try:
        return _core.RopeTable(rope, positions, compute_dtype(dtype))
    except InvalidArgument as error:
        # The parser's error names a column of the text; the number it means stands after "expected".
        name, _, wanted = error.expected.partition(" to be ")
        if error.argument.startswith("expression") and wanted:
            raise InvalidArgument("Rope", name, wanted, error.got) from None
        raise


def rotate(
    x: Any, rope: Union[Rope, RopeTables], positions: Any = 0, *, sequence_len: Optional[int] = None
) -> Any:
    """Rotates every row of x by its position.

    Args:
        x: [batch, heads, length, head_dim] of f32, f64, bf16 or f16; x is copied if its last axis is not contiguous.
        rope: a `Rope`, or `RopeTables` of cosines and sines.
        positions: that of the first row, which the others follow; or one for each row, [length] or [batch, length].
        sequence_len: how many positions the table has, at least as many as needed. For DynamicNtkScaling and
            LongRopeScaling it is the sequence's length. In a decoding loop it saves new tables. None: as many as
            needed, rounded up to a power of two (not rounded with DynamicNtkScaling, nor beyond the original
            positions with LongRopeScaling while they are enough). RopeTables have their own length.

    Returns:
        An array like x. PyTorch tensors get a gradient for x; tables get none.

    >>> fovea.rotate(q, fovea.Rope(8), positions=3).shape
    (1, 2, 4, 8)
    """
    if not isinstance(rope, (Rope, RopeTables)):
        raise InvalidArgument("rotate", "rope", "a fovea.Rope or fovea.RopeTables", shown(rope))
    dtype = dtype_name(x, "x", "rotate")
    if len(x.shape) != 4:
        raise InvalidArgument("rotate", "x", "[batch, heads, length, head_dim]", f"{list(x.shape)}")
    if isinstance(rope, RopeTables):
        return _by_tables(x, rope, positions, sequence_len, dtype)
    first, listed = positions_of(positions, int(x.shape[0]), int(x.shape[2]))
    size = _table_size(rope, first, listed, int(x.shape[2]), sequence_len)
    return library_of(x).rotate(x, rope._text(), size, first, listed)


def _table_size(rope: Rope, first: int, listed: Optional[list[int]], length: int, sequence_len: Any) -> int:
    """How many positions the table for this call must have."""
    least, last = (first, first + length - 1) if listed is None else (min(listed, default=0), max(listed, default=-1))
    if least < 0:
        raise InvalidArgument("rotate", "positions", "positions of at least 0", str(least))
    most = _MOST_TABLE // max(1, int(integer(rope.rotary_dim, "Rope.rotary_dim")))
    if last >= most:
        got = str(last) if listed is not None or length < 2 else f"{first} and the {length - 1} after it"
        raise InvalidArgument("rotate", "positions", f"positions below {most}, all of which a table holds", got)
    if sequence_len is None:
        if isinstance(rope.scaling, DynamicNtkScaling):
            return last + 1
        size = min(1 << max(last, 0).bit_length(), most)
        if isinstance(rope.scaling, LongRopeScaling):
            original = int(integer(rope.scaling.original_max_positions, "LongRopeScaling.original_max_positions"))
            if last < original:
                size = min(size, original)
        return size
    size = int(integer(sequence_len, "rotate.sequence_len"))
    if not last < size <= most:
        raise InvalidArgument(
            "rotate", "sequence_len", f"a number in [{last + 1}, {most}], above every position", str(size)
        )
    return size


def _by_tables(x: Any, tables: RopeTables, positions: Any, sequence_len: Any, dtype: str) -> Any:
    if sequence_len is not None:
        raise InvalidArgument("rotate", "sequence_len", "None: the tables have their own length", shown(sequence_len))
    library = library_of(x)
    cos, sin = (
        library.parameter(table, compute_dtype(dtype), name, "rotate")
        for name, table in (("cos", tables.cos), ("sin", tables.sin))
    )
    shape, batch, dim = tuple(cos.shape), int(x.shape[0]), int(x.shape[3])
    if len(shape) not in (2, 3) or not 1 <= shape[-1] <= dim // 2 or (len(shape) == 3 and shape[0] not in (1, batch)):
        half = f" (cos[..., : {dim // 2}]: each number once)" if shape and shape[-1] == dim else ""
        raise InvalidArgument(
            "rotate",
            "cos",
            f"[positions, n] or [{batch}, positions, n] with an n of at most {dim // 2}, half of head_dim{half}",
            described(cos),
        )
    if tuple(sin.shape) != shape:
        raise InvalidArgument("rotate", "sin", f"{list(shape)}, the shape of cos", described(sin))
    if len(shape) == 3 and shape[0] == 1:
        cos, sin = cos[0], sin[0]
    return library.rotate_by_tables(x, cos, sin, truth(tables.interleaved, "RopeTables.interleaved"), positions)


def positions_of(positions: Any, batch: int, length: int) -> tuple[int, Optional[list[int]]]:
    """(position of the first row, None), or (0, positions of all rows)."""
    shape = _shape_of(positions)
    if not shape:
        return int(integer(positions, "rotate.positions")), None
    check_shape(shape, batch, length)
    if hasattr(positions, "reshape"):
        positions = positions.reshape(-1)
    elif len(shape) == 2:
        positions = [n for row in positions for n in row]
    return 0, list(integers(positions, "rotate.positions"))


def _shape_of(positions: Any) -> tuple[int, ...]:
    if not isinstance(positions, (list, tuple)):
        return tuple(getattr(positions, "shape", ()))
    rows = [row for row in positions if isinstance(row, (list, tuple))]
    if rows and len(rows) == len(positions) and len({len(row) for row in rows}) == 1:
        return len(rows), len(rows[0])
    return (len(positions),)


def check_shape(shape: tuple[int, ...], batch: int, length: int) -> None:
    if shape not in ((length,), (batch, length)):
        raise InvalidArgument(
            "rotate", "positions", f"a number, [{length}] or [{batch}, {length}]", f"{list(shape)}"
        )
