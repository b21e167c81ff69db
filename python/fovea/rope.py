"""Rotary position embeddings (Su et al. 2021, arXiv 2104.09864): queries and keys are turned by angles that grow with
their positions, before `attention` and when keys enter a cache."""

from __future__ import annotations

import functools
from typing import Any, ClassVar, Optional

from . import _core
from ._arrays import dtype_name, is_torch, library_of
from ._errors import InvalidArgument
from ._value import Value, integer, integers, number

__all__ = [
    "Rope",
    "RopeScaling",
    "LinearScaling",
    "NtkScaling",
    "DynamicNtkScaling",
    "YarnScaling",
    "Llama3Scaling",
    "rotate",
]


class RopeScaling(Value):
    """What `Rope(scaling=)` takes.

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
    """base · factor^(d / (d - 2)): the slowest pair is slowed by `factor`, the fastest not at all (Peng et al.
    2023, arXiv 2309.00071, section 3.1).

    >>> fovea.rotate(q, fovea.Rope(8, scaling=fovea.NtkScaling(4))).shape
    (1, 2, 4, 8)
    """

    factor: float
    _name = "ntk"


class DynamicNtkScaling(RopeScaling):
    """NtkScaling by what a sequence has more than the training's positions; queries and keys have to be turned
    with the same `sequence_len`.

    >>> rope = fovea.Rope(8, scaling=fovea.DynamicNtkScaling(2, original_max_positions=16))
    >>> bool((fovea.rotate(q, rope, sequence_len=16) == fovea.rotate(q, fovea.Rope(8))).all())
    True
    """

    factor: float
    original_max_positions: int
    _name = "dynamic"


class YarnScaling(RopeScaling):
    """YaRN (Peng et al. 2023): pairs that turn more than `beta_fast` times within the original positions stay,
    those of fewer than `beta_slow` turns are divided by `factor`, with a linear ramp between.

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
    """Llama 3.1: pairs of short wavelengths stay, those of long ones are divided by `factor`.

    >>> fovea.rotate(q, fovea.Rope(8, scaling=fovea.Llama3Scaling(8, 1, 4, 8192))).shape
    (1, 2, 4, 8)
    """

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_positions: int
    _name = "llama3"


class Rope(Value):
    """Pair n of `rotary_dim / 2` turns by position · base^(-2n / rotary_dim).

    Args:
        rotary_dim: elements of a head that are turned, even; the others stay as they are.
        base: "theta", above 1.
        interleaved: pairs are elements 2n and 2n + 1 (GPT-J, DeepSeek), not n and n + rotary_dim / 2 (Llama,
            GPT-NeoX).
        scaling: None: none.

    >>> fovea.Rope(64, scaling=fovea.Llama3Scaling(8, 1, 4, 8192))
    fovea.Rope(64, scaling=fovea.Llama3Scaling(8, 1, 4, 8192))
    """

    rotary_dim: int
    base: float = 10000.0
    interleaved: bool = False
    scaling: Optional[RopeScaling] = None

    def _text(self) -> str:
        parts = [integer(self.rotary_dim, "Rope.rotary_dim"), f"base={number(self.base, 'Rope.base')}"]
        parts.append("interleaved" if self.interleaved else "half")
        if self.scaling is not None:
            if not isinstance(self.scaling, RopeScaling):
                raise InvalidArgument("Rope", "scaling", "a RopeScaling of fovea, or None", repr(self.scaling))
            parts.append(self.scaling._text())
        return f"rope({','.join(parts)})"


# Cosines and sines together: 4 GiB of f32.
_MOST_TABLE = 1 << 30


@functools.lru_cache(maxsize=32)
def _table(rope: str, positions: int, dtype: str) -> "_core.RopeTable":
    try:
        return _core.RopeTable(rope, positions, dtype)
    except InvalidArgument as error:
        # The grammar names a column of its text, and says of which number behind "expected".
        name, _, wanted = error.expected.partition(" to be ")
        if error.argument.startswith("expression") and wanted:
            raise InvalidArgument("Rope", name, wanted, error.got) from None
        raise


def rotate(
    x: Any, rope: Rope, positions: Any = 0, *, sequence_len: Optional[int] = None
) -> Any:
    """Turns every row of x by its position.

    Args:
        x: [batch, heads, length, head_dim] of f32, f64, bf16 or f16; the last axis is copied where it is not
            contiguous.
        positions: of the first row, the others following it; or one a row, [length] or [batch, length].
        sequence_len: the positions that a table is made for, at least those needed: the sequence's length for
            DynamicNtkScaling, and worth giving in a decoding loop. None: as many as are needed, rounded up to a
            power of two (with DynamicNtkScaling not rounded).

    Returns:
        An array like x. PyTorch tensors get its gradient.

    >>> fovea.rotate(q, fovea.Rope(8), positions=3).shape
    (1, 2, 4, 8)
    """
    if not isinstance(rope, Rope):
        raise InvalidArgument("rotate", "rope", "a fovea.Rope", repr(rope)[:80])
    dtype = dtype_name(x, "x")
    if len(x.shape) != 4:
        raise InvalidArgument("rotate", "x", "[batch, heads, length, head_dim]", f"{list(x.shape)}")
    first, listed = _positions(positions, int(x.shape[0]), int(x.shape[2]))
    needed = 1 + (max(listed, default=0) if listed is not None else first + int(x.shape[2]) - 1)
    if sequence_len is None:
        dynamic = isinstance(rope.scaling, DynamicNtkScaling)
        sequence_len = max(needed, 0) if dynamic else 1 << max(needed - 1, 0).bit_length()
    size = int(integer(sequence_len, "rotate.sequence_len"))
    most = _MOST_TABLE // max(1, int(integer(rope.rotary_dim, "Rope.rotary_dim")))
    if size > most:
        raise InvalidArgument(
            "rotate",
            "positions",
            f"positions below {most}, all of which a table holds",
            str(size),
        )
    if is_torch(x):
        from .torch import _rope

        return _rope.rotate(x, rope._text(), size, first, listed)
    library = library_of(x)
    out = library.empty(tuple(x.shape), dtype, x)
    table = _table(rope._text(), size, "f64" if dtype == "f64" else "f32")
    table.rotate(library.operand(x), first, listed, out, False)
    return library.result(out, x)


def _positions(positions: Any, batch: int, length: int) -> tuple[int, Optional[list[int]]]:
    shape = tuple(getattr(positions, "shape", ())) or (
        (len(positions),) if isinstance(positions, (list, tuple)) else ()
    )
    if not shape:
        return int(integer(positions, "rotate.positions")), None
    if hasattr(positions, "reshape"):
        if shape not in ((length,), (batch, length)):
            raise InvalidArgument(
                "rotate", "positions", f"a number, [{length}] or [{batch}, {length}]", f"{list(shape)}"
            )
        positions = positions.reshape(-1)
    return 0, list(integers(positions, "rotate.positions"))
