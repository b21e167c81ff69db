"""Rotary positions by the caller's own tables, against complex numbers in double."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fovea


def tables(rng: Any, *shape: int) -> tuple[Any, Any]:
    angles = rng.uniform(-3, 3, shape)
    return np.cos(angles), np.sin(angles)


def turned(x: Any, cos: Any, sin: Any, interleaved: bool, positions: Any) -> Any:
    """The definition, row by row. positions: [batch, length]."""
    pairs = cos.shape[-1]
    first, second = (slice(0, 2 * pairs, 2), slice(1, 2 * pairs, 2)) if interleaved else (slice(0, pairs), slice(pairs, 2 * pairs))
    out = np.array(x, np.float64)
    for b in range(x.shape[0]):
        own_cos, own_sin = (t[b] if t.ndim == 3 else t for t in (cos, sin))
        for row in range(x.shape[2]):
            p = positions[b][row]
            points = (out[b, :, row, first] + 1j * out[b, :, row, second]) * (own_cos[p] + 1j * own_sin[p])
            out[b, :, row, first], out[b, :, row, second] = points.real, points.imag
    return out


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("pairs", [4, 1, 3])
@pytest.mark.parametrize("batched", [False, True])
def test_is_its_definition(rng: Any, interleaved: bool, pairs: int, batched: bool) -> None:
    x = rng.standard_normal((2, 3, 5, 8))
    cos, sin = tables(rng, *([2] if batched else []), 11, pairs)
    rope = fovea.RopeTables(cos, sin, interleaved)
    each = [[10, 0, 3, 3, 7], [1, 2, 9, 0, 0]]
    cases = [
        (0, [range(5)] * 2),
        (6, [range(6, 11)] * 2),
        ([4, 4, 0, 1, 10], [[4, 4, 0, 1, 10]] * 2),
        (np.array(each), each),
        (each, each),
    ]
    for given, positions in cases:
        wanted = turned(x, cos, sin, interleaved, positions)
        np.testing.assert_allclose(fovea.rotate(x, rope, given), wanted, rtol=0, atol=1e-14)
        for dtype, unit in (("f4", 2**-22), ("f2", 2**-9)):
            got = fovea.rotate(x.astype(dtype), rope, given)
            assert got.dtype == dtype
            np.testing.assert_allclose(got, wanted, rtol=unit, atol=8 * unit)


def test_the_tables_of_a_rope_equal_that_rope(rng: Any) -> None:
    x = rng.standard_normal((1, 2, 6, 10)).astype("f4")
    angles = np.arange(20)[:, None] * 500.0 ** (-np.arange(4) / 4)
    for interleaved in (False, True):
        by_tables = fovea.rotate(x, fovea.RopeTables(np.cos(angles), np.sin(angles), interleaved), 9)
        assert np.array_equal(by_tables, fovea.rotate(x, fovea.Rope(8, 500.0, interleaved), 9))


def test_tables_of_any_kind(rng: Any) -> None:
    """Other dtypes, strides, lists, one entry for all of a batch."""
    x = rng.standard_normal((2, 1, 3, 4)).astype("f4")
    cos, sin = (t.astype("f4") for t in tables(rng, 3, 2))
    wanted = fovea.rotate(x, fovea.RopeTables(cos, sin))
    wide = [np.repeat(t, 2, axis=-1)[:, ::2] for t in (cos, sin)]
    for same in (
        (cos.astype("f8"), sin.astype("f8")),
        (cos.tolist(), sin.tolist()),
        (cos[None], sin[None]),
        (np.stack([cos, cos]), np.stack([sin, sin])),
        (np.asfortranarray(cos), np.asfortranarray(sin)),
        wide,
    ):
        assert np.array_equal(fovea.rotate(x, fovea.RopeTables(*same)), wanted)


def test_the_opposite_sine_rotates_back(rng: Any) -> None:
    """The gradient uses this rotation."""
    x = rng.standard_normal((1, 2, 3, 6))
    cos, sin = tables(rng, 3, 3)
    there = fovea.rotate(x, fovea.RopeTables(cos, sin))
    np.testing.assert_allclose(fovea.rotate(there, fovea.RopeTables(cos, -sin)), x, atol=1e-14)


def test_a_table_respects_its_largest_size() -> None:
    """All positions that fit are served, even if the next power of two would not fit."""
    from fovea.rope import _MOST_TABLE, _table_size

    rope = fovea.Rope(96)
    most = _MOST_TABLE // 96
    assert _table_size(rope, most - 1, None, 1, None) == most
    assert _table_size(rope, 5, None, 3, None) == 8
    assert _table_size(rope, 0, [8], 1, None) == 16
    assert _table_size(fovea.Rope(96, scaling=fovea.DynamicNtkScaling(2, 4)), 0, [8], 1, None) == 9


def test_longrope_divides_the_frequencies_by_the_sequence_length(rng: Any) -> None:
    short, long = [1.0, 1.5, 2.0, 3.0], [1.0, 2.0, 5.0, 9.0]
    scaling = fovea.LongRopeScaling(12, short, np.array(long), 1.25)
    rope = fovea.Rope(8, 500.0, scaling=scaling)
    x = rng.standard_normal((1, 2, 5, 10))

    def wanted(factors: Any, first: int) -> Any:
        angles = np.arange(first + 5)[:, None] * 500.0 ** (-np.arange(4) / 4) / np.array(factors)
        return turned(x, 1.25 * np.cos(angles), 1.25 * np.sin(angles), False, [range(first, first + 5)])

    for first, sequence_len, factors in [(0, None, short), (7, None, short), (7, 12, short), (7, 13, long), (8, None, long), (0, 40, long)]:
        got = fovea.rotate(x, rope, first, sequence_len=sequence_len)
        np.testing.assert_allclose(got, wanted(factors, first), rtol=0, atol=1e-13, err_msg=f"{first} {sequence_len}")
    assert fovea.LongRopeScaling(12, tuple(short), long, 1.25) == scaling
    assert eval(repr(rope)) == rope


@pytest.mark.parametrize(
    "short, long, positions, wanted",
    [
        ([1, 1, 1], [1, 1, 1, 1], 8, "short_factors: expected 4 numbers, one for each pair of elements, got 3"),
        ([1, 1, 1, 1], [1, 1, 0, 1], 8, r"long_factors: expected a number in \[1e-30, .*got 0"),
        ([1, 1, 1, "a"], [1, 1, 1, 1], 8, "LongRopeScaling: short_factors: expected a number, got 'a'"),
        (2, [1, 1, 1, 1], 8, "LongRopeScaling: short_factors: expected a sequence of numbers, got 2"),
        ([1, 1, 1, 1], [], 8, r"LongRopeScaling: long_factors: expected a sequence of numbers, got \(\)"),
        ([1, 1, 1, 1], [1, 1, 1, 1], 0, "original_max_positions.*got 0"),
    ],
)
def test_longrope_refuses(rng: Any, short: Any, long: Any, positions: int, wanted: str) -> None:
    with pytest.raises(fovea.InvalidArgument, match=wanted):
        fovea.rotate(rng.standard_normal((1, 1, 2, 8)), fovea.Rope(8, scaling=fovea.LongRopeScaling(positions, short, long)))
