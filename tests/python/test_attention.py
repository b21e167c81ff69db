"""`fovea.attention` against the definitions in float64."""

from __future__ import annotations

from typing import Any

import cases
import numpy as np
import oracle
import pytest
from cases import Sizes

import fovea

# Bounds of rounding, of the dtype and of sums in f32 (f64), relative to the largest number of a result.
TOLERANCE = {"f64": 1e-12, "f32": 2e-5, "f16": 2e-3, "bf16": 1.6e-2}


def close(got: Any, wanted: Any, name: str, what: str = "") -> None:
    got, wanted = np.asarray(got, np.float64), np.asarray(wanted, np.float64)
    assert got.shape == wanted.shape, what
    finite = np.isfinite(wanted)
    assert np.array_equal(np.isfinite(got), finite), what
    assert np.array_equal(got[~finite], wanted[~finite]), what
    most = max(1.0, float(np.abs(wanted[finite]).max(initial=0.0)))
    error = float(np.abs(got[finite] - wanted[finite]).max(initial=0.0))
    assert error <= TOLERANCE[name] * most, f"{what}: error {error:.2e} beside {most:.2e}"


def rounded(value: Any, name: str) -> Any:
    """Parameters as the engine converts them: f64 for f64, f32 for all other dtypes."""
    if name == "f64" or value is None:
        return value
    fields = {
        field: np.asarray(x, np.float32) if isinstance(x, np.ndarray) and x.dtype == np.float64 else x
        for field, x in value._fields().items()
    }
    return type(value)(**fields) if fields else value


def check(rng: Any, sizes: Sizes, name: str, **spec: Any) -> None:
    q, k, v = cases.arrays(rng, sizes, cases.dtype(name))
    if isinstance(spec.get("score"), fovea.Location):
        k = None
    for field in ("score", "normalizer"):
        spec[field] = rounded(spec.get(field), name)
    for field in ("mods", "weight_mods"):
        spec[field] = [rounded(mod, name) for mod in spec.get(field, ())]
    got = fovea.attention(q, k, v, return_lse=True, return_weights=True, **spec)
    wanted = oracle.attention(q, k, v, **spec)
    assert got[0].dtype == q.dtype
    assert got[1].dtype == got[2].dtype == (np.float64 if name == "f64" else np.float32)
    for own, theirs, what in zip(got, wanted, ("output", "lse", "weights")):
        close(own, theirs, name if what == "output" else "f64" if name == "f64" else "f32", what)
    alone = fovea.attention(q, k, v, **spec)
    close(alone, wanted[0], name, "output alone")


@pytest.mark.parametrize("name", cases.DTYPES)
@pytest.mark.parametrize("score", cases.SCORES)
def test_scores(rng: Any, score: str, name: str) -> None:
    check(rng, Sizes(), name, score=cases.SCORES[score](rng, Sizes()))


@pytest.mark.parametrize("name", cases.DTYPES)
@pytest.mark.parametrize("mod", cases.MODS)
def test_mods(rng: Any, mod: str, name: str) -> None:
    check(rng, Sizes(), name, mods=[cases.MODS[mod](rng, Sizes())])


@pytest.mark.parametrize("name", cases.DTYPES)
@pytest.mark.parametrize("mask", cases.MASKS)
def test_masks(rng: Any, mask: str, name: str) -> None:
    check(rng, Sizes(), name, mask=cases.MASKS[mask](rng, Sizes()))


@pytest.mark.parametrize("name", cases.DTYPES)
@pytest.mark.parametrize("normalizer", cases.NORMALIZERS)
def test_normalizers(rng: Any, normalizer: str, name: str) -> None:
    check(rng, Sizes(), name, normalizer=cases.NORMALIZERS[normalizer](rng, Sizes()))


@pytest.mark.parametrize("name", cases.DTYPES)
@pytest.mark.parametrize("mod", cases.WEIGHT_MODS)
def test_weight_mods(rng: Any, mod: str, name: str) -> None:
    check(rng, Sizes(), name, weight_mods=[cases.WEIGHT_MODS[mod](rng, Sizes())])


@pytest.mark.parametrize("name", cases.DTYPES)
def test_forget_gate(rng: Any, name: str) -> None:
    sizes = Sizes(rows=7, columns=7)
    gate = fovea.ForgetGate.of(-rng.random((2, 4, 7)))
    check(rng, sizes, name, mods=[gate], mask=fovea.Causal())


SHAPES = {
    "one of each": Sizes(1, 1, 1, 1, 1, 1, 1),
    "one kv head": Sizes(kv_heads=1),
    "a head a kv head": Sizes(kv_heads=4),
    "value_dim larger": Sizes(dim=4, value_dim=9),
    "decoding": Sizes(rows=1, columns=33, dim=16, value_dim=16),
    "more queries than keys": Sizes(rows=9, columns=4),
    "blocks of a tile": Sizes(1, 2, 1, 70, 140, 16, 16),
    "odd sizes": Sizes(1, 3, 3, 17, 131, 5, 7),
}


@pytest.mark.parametrize("name", cases.DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_shapes(rng: Any, shape: str, name: str) -> None:
    check(rng, SHAPES[shape], name)
    check(rng, SHAPES[shape], name, mask=fovea.Causal(), mods=[fovea.SoftCap(2)])


@pytest.mark.parametrize("offset", [None, 0, 3, 100, -3])
def test_offsets(rng: Any, offset: int) -> None:
    for mask in (fovea.Causal(), fovea.SlidingWindow(2, 1), fovea.Documents([0, 2, 5]), fovea.Chunked(2)):
        check(rng, Sizes(), "f64", mask=mask, mods=[fovea.AlibiBias([0.1, 0.2, 0.3, 0.4])], query_offset=offset)


@pytest.mark.parametrize("scale", [0.0, 1.0, -0.5, 3.25])
def test_scales(rng: Any, scale: float) -> None:
    check(rng, Sizes(), "f64", scale=scale)
    check(rng, Sizes(), "f64", scale=scale, score=fovea.Dot(), mods=[fovea.SoftCap(1)])


def test_key_dim_of_its_own(rng: Any) -> None:
    q, k, v = cases.arrays(rng, Sizes(), np.float64, key_dim=3)
    for score in (
        fovea.Bilinear(rng.standard_normal((3, 6))),
        fovea.Additive(rng.standard_normal((5, 6)), rng.standard_normal((5, 3)), rng.standard_normal(5)),
        fovea.Concat(rng.standard_normal((5, 9)), rng.standard_normal(5)),
        fovea.LowRankBilinear(rng.standard_normal((4, 6)), rng.standard_normal((4, 3))),
    ):
        close(fovea.attention(q, k, v, score=score), oracle.attention(q, k, v, score=score)[0], "f64", repr(score))


def test_compositions(rng: Any) -> None:
    """Random compositions of all parts."""
    sizes = Sizes()

    def draw(table: dict[str, Any]) -> str:
        return str(rng.choice(list(table)))

    for number in range(150):
        score, mask, normalizer = draw(cases.SCORES), draw(cases.MASKS), draw(cases.NORMALIZERS)
        mods = [draw(cases.MODS) for _ in range(rng.integers(0, 4))]
        mods.sort(key=lambda mod: mod == "local window")  # it has to be the last
        weight_mods = [draw(cases.WEIGHT_MODS) for _ in range(rng.integers(0, 2))]
        try:
            check(
                rng,
                sizes,
                "f64",
                score=cases.SCORES[score](rng, sizes),
                mods=[cases.MODS[mod](rng, sizes) for mod in mods],
                mask=cases.MASKS[mask](rng, sizes),
                normalizer=cases.NORMALIZERS[normalizer](rng, sizes),
                weight_mods=[cases.WEIGHT_MODS[mod](rng, sizes) for mod in weight_mods],
            )
        except Exception as error:
            raise AssertionError(f"{number}: {score}, {mods}, {mask}, {normalizer}, {weight_mods}: {error}") from error


STRIDES = {
    "heads behind rows": lambda x: np.ascontiguousarray(x.transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3),
    "batch last but one": lambda x: np.ascontiguousarray(x.transpose(2, 1, 0, 3)).transpose(2, 1, 0, 3),
    "sliced": lambda x: np.repeat(x, 2, axis=2)[:, :, ::2],
    "sliced within": lambda x: np.repeat(x, 2, axis=3)[..., ::2],
    "every axis backwards": lambda x: x[::-1, ::-1, ::-1, ::-1].copy()[::-1, ::-1, ::-1, ::-1],
    "rows backwards": lambda x: x[:, :, ::-1].copy()[:, :, ::-1],
    "Fortran's": lambda x: np.asfortranarray(x),
    "with room behind": lambda x: np.pad(x, ((0, 0), (0, 0), (0, 0), (0, 5)))[..., : x.shape[3]],
}


@pytest.mark.parametrize("name", cases.DTYPES)
@pytest.mark.parametrize("stride", STRIDES)
def test_strides(rng: Any, stride: str, name: str) -> None:
    """The same bits, whatever the strides."""
    q, k, v = cases.arrays(rng, Sizes(), cases.dtype(name))
    wanted = fovea.attention(q, k, v, mask=fovea.Causal())
    lay = STRIDES[stride]
    got = fovea.attention(lay(q), lay(k), lay(v), mask=fovea.Causal())
    assert np.array_equal(got.view(np.uint8), wanted.view(np.uint8))
    out = lay(np.zeros_like(wanted))
    if out.strides[-1] == out.itemsize and not stride.startswith("sliced"):
        assert fovea.attention(q, k, v, mask=fovea.Causal(), out=out) is out
        assert np.array_equal(np.ascontiguousarray(out).view(np.uint8), wanted.view(np.uint8))


def test_strides_of_zero(rng: Any) -> None:
    q, k, v = cases.arrays(rng, Sizes(), np.float64)
    q1, k1, v1 = (np.broadcast_to(x[:, :1, :1], x.shape) for x in (q, k, v))
    bias = np.broadcast_to(rng.standard_normal((1, 1, 1, 7)), (2, 4, 5, 7))
    got = fovea.attention(q1, k1, v1, mods=[fovea.DenseBias(bias)])
    close(got, oracle.attention(q1, k1, v1, mods=[fovea.DenseBias(bias)])[0], "f64")
    close(fovea.attention(np.broadcast_to(q[..., :1], q.shape), k, v), oracle.attention(np.repeat(q[..., :1], 6, 3), k, v)[0], "f64")


@pytest.mark.parametrize("zero", ["batch", "rows", "columns", "rows and columns"])
def test_sizes_of_zero(rng: Any, zero: str) -> None:
    sizes = Sizes(
        batch=0 if zero == "batch" else 2, rows=0 if "rows" in zero else 5, columns=0 if "columns" in zero else 7
    )
    for name in ("f64", "f32"):
        check(rng, sizes, name)
        check(rng, sizes, name, mask=fovea.Causal(), normalizer=fovea.Sparsemax())


def test_lists_and_numbers_as_parameters(rng: Any) -> None:
    q, k, v = cases.arrays(rng, Sizes(), np.float32)
    slopes = [0.5, 0.25, 0.125, 0.0625]
    as_list = fovea.attention(q, k, v, mods=[fovea.AlibiBias(slopes)])
    assert np.array_equal(as_list, fovea.attention(q, k, v, mods=[fovea.AlibiBias(np.array(slopes))]))
    assert np.array_equal(as_list, fovea.attention(q, k, v, mods=(fovea.AlibiBias(tuple(slopes)),)))
    assert np.array_equal(
        fovea.attention(q, k, v, mods=fovea.SoftCap(2)), fovea.attention(q, k, v, mods=[fovea.SoftCap(2.0)])
    )


def test_arguments_of_mods_may_have_all_axes(rng: Any) -> None:
    q, k, v = (rng.standard_normal((2, 4, 5, 8)).astype(np.float32) for _ in range(3))
    slopes = rng.random(4).astype(np.float32)

    def attended(given: Any) -> Any:
        return fovea.attention(q, k, v, mods=[fovea.AlibiBias(given)])

    assert np.array_equal(attended(slopes), attended(slopes.reshape(1, 4, 1, 1)))
    by_entry = np.stack([slopes, 2 * slopes]).reshape(2, 4, 1, 1)
    assert np.array_equal(attended(by_entry)[0], attended(slopes)[0])
    assert np.array_equal(attended(by_entry)[1], attended(2 * slopes)[1])


def test_weights_of_some_heads_and_rows(rng: Any) -> None:
    q, k, v = cases.arrays(rng, Sizes(), np.float64)
    out, weights = fovea.attention(q, k, v, return_weights=True, weight_heads=[3, 0], weight_rows=(4, 2, 0))
    wanted = oracle.attention(q, k, v)
    close(out, wanted[0], "f64")
    close(weights, wanted[2][:, [3, 0]][:, :, [4, 2, 0]], "f64")


def test_weights_alone(rng: Any) -> None:
    """A pointer network has no values."""
    q, k, _ = cases.arrays(rng, Sizes(), np.float32)
    weights = fovea.attention(q, k, None)
    close(weights, oracle.attention(q, k, None)[2], "f32")
    lse, weights = fovea.attention(q, k, None, return_lse=True, weight_heads=[1])
    close(lse, oracle.attention(q, k, None)[1], "f32")
    close(weights, oracle.attention(q, k, None)[2][:, [1]], "f32")


def test_a_row_that_sees_nothing(rng: Any) -> None:
    q, k, v = cases.arrays(rng, Sizes(), np.float32)
    k[:, :, 3:], v[:, :, 3:] = np.nan, np.inf  # hidden keys never reach a result
    mask = np.zeros((5, 7), bool)
    mask[1:, :3] = True
    out, lse, weights = fovea.attention(q, k, v, mask=mask, return_lse=True, return_weights=True)
    assert not out[:, :, 0].any() and np.isfinite(out).all()
    assert (lse[:, :, 0] == -np.inf).all() and not weights[:, :, 0].any()


@pytest.mark.parametrize("normalizer", [fovea.HardSample(), fovea.GumbelSample(0.5)], ids=repr)
def test_samples(rng: Any, normalizer: Any) -> None:
    """One key for each row, drawn by its weight; the same key for the same seed."""
    q, k, v = cases.arrays(rng, Sizes(batch=1), np.float64)
    total = np.zeros((1, 4, 5, 7))
    for seed in range(3000):
        out, weights = fovea.attention(q, k, v, normalizer=normalizer, seed=seed, return_weights=True)
        assert set(np.unique(weights)) <= {0.0, 1.0} and (weights.sum(-1) == 1).all()
        total += weights
        if seed < 3:
            close(out, weights @ np.repeat(v, 2, axis=1), "f64")
            again = fovea.attention(q, k, v, normalizer=normalizer, seed=seed)
            assert np.array_equal(out, again)
    assert np.abs(total / 3000 - oracle.attention(q, k, v)[2]).max() < 5 * 0.5 / np.sqrt(3000)


def test_dropout(rng: Any) -> None:
    """Dropout acts after the returned weights: weights are dropped at the rate, and the others are scaled up to keep the mean."""
    sizes = Sizes(rows=64, columns=64, value_dim=64)
    q, k, _ = cases.arrays(rng, sizes, np.float64)
    v = np.broadcast_to(np.eye(64), (2, 2, 64, 64))  # outputs are the weights
    out, weights = fovea.attention(q, k, v, dropout=0.25, seed=5, return_weights=True)
    close(weights, oracle.attention(q, k, v)[2], "f64")
    kept = out != 0
    close(out, np.where(kept, weights / 0.75, 0), "f64")
    assert abs(kept.mean() - 0.75) < 5 * np.sqrt(0.25 * 0.75 / kept.size)
    assert np.array_equal(out, fovea.attention(q, k, v, dropout=0.25, seed=5))
    assert not np.array_equal(out, fovea.attention(q, k, v, dropout=0.25, seed=6))
    assert not np.array_equal(*(fovea.attention(q, k, v, dropout=0.25) for _ in range(2)))
    close(fovea.attention(q, k, v, dropout=0.0), weights, "f64")


@pytest.mark.parametrize("name", cases.DTYPES)
def test_same_bits_for_every_number_of_threads(rng: Any, name: str) -> None:
    q, k, v = cases.arrays(rng, Sizes(rows=150, columns=150, dim=16, value_dim=16), cases.dtype(name))
    spec: dict[str, Any] = dict(mask=fovea.Causal(), mods=[fovea.AlibiBias(fovea.alibi_slopes(4))], seed=1)
    found = []
    for threads in (1, 2, 5):
        fovea.set_num_threads(threads)
        assert fovea.get_num_threads() == threads
        gradients = fovea.gradients(q, k, v, np.ones_like(q), **spec)
        found.append([fovea.attention(q, k, v, dropout=0.1, **spec), *gradients.values()])
    for one in found[1:]:
        assert all(np.array_equal(a.view(np.uint8), b.view(np.uint8)) for a, b in zip(found[0], one))


def test_big_bird_is_a_window_globals_and_some_more(rng: Any) -> None:
    q, k, v = cases.arrays(rng, Sizes(1, 1, 1, 64, 64, 4, 4), np.float64)
    mask = fovea.BigBird(64, 4, 1, 1, 2, seed=3)
    seen = fovea.attention(q, k, v, mask=mask, return_weights=True)[1][0, 0].reshape(16, 4, 16, 4) > 0
    table = seen[:, 0, :, 0]
    assert (seen == table[:, None, :, None]).all()
    blocks = np.arange(16)
    near = np.abs(blocks[:, None] - blocks) <= 1
    assert table[near].all() and table[0].all() and table[:, 0].all()
    drawn = (table & ~near)[1:, 1:].sum(1)  # a drawn block may be visible already
    assert drawn.max() == 2 and drawn.sum() > 15


class OnlyDlpack:
    """The least that a library of arrays has to offer."""

    def __init__(self, x: Any):
        self.x = x

    def __dlpack__(self, **how: Any) -> Any:
        return self.x.__dlpack__(**how)

    def __dlpack_device__(self) -> Any:
        return self.x.__dlpack_device__()


def test_dlpack_alone_is_enough() -> None:
    q, k, v = np.random.default_rng(0).standard_normal((3, 1, 2, 4, 8), np.float32)
    want = fovea.attention(q, k, v, mask=fovea.Causal())
    given = [OnlyDlpack(x) for x in (q, k, v)]
    assert np.array_equal(fovea.attention(*given, mask=fovea.Causal()), want)
    assert fovea.explain(*given) == fovea.explain(q, k, v)
    with pytest.raises(fovea.InvalidArgument, match="query"):
        fovea.attention(OnlyDlpack(q.astype(int)), k, v)
