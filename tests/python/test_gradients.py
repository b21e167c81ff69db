"""`fovea.gradients` against central differences in float64, of every array by its name."""

from __future__ import annotations

import dataclasses
from typing import Any

import cases
import numpy as np
import oracle
import pytest
from cases import Sizes

import fovea

SMALL = Sizes(batch=2, heads=2, kv_heads=1, rows=3, columns=4, dim=6, value_dim=2)
FIELDS = {"slope": "slopes"}  # engine's name of an array: name of the field, if they differ


def replaced(spec: dict[str, Any], name: str, array: Any) -> dict[str, Any]:
    """The spec with the array of that name replaced."""
    whole, _, field = name.partition(".")
    field = FIELDS.get(field, field)
    if "[" in whole:
        which, n = whole[:-1].split("[")
        values = list(spec[which])
        values[int(n)] = dataclasses.replace(values[int(n)], **{field: array})
        return {**spec, which: values}
    return {**spec, whole: dataclasses.replace(spec[whole], **{field: array})}


def array_of(spec: dict[str, Any], name: str) -> Any:
    whole, _, field = name.partition(".")
    field = FIELDS.get(field, field)
    value = spec[whole[:-1].split("[")[0]][int(whole[:-1].split("[")[1])] if "[" in whole else spec[whole]
    return np.asarray(getattr(value, field), np.float64)


def check(rng: Any, sizes: Sizes, weights: bool = False, normal: float = 1.0, **spec: Any) -> dict[str, Any]:
    """Every derivative of Σ output·c (+ Σ weights·d) equals a central difference."""
    given = dict(zip(("query", "key", "value"), cases.arrays(rng, sizes, np.float64)))
    if isinstance(spec.get("score"), fovea.Location):
        given["key"] = None
    d_output = rng.standard_normal((sizes.batch, sizes.heads, sizes.rows, sizes.value_dim))
    d_weights = rng.standard_normal((sizes.batch, sizes.heads, sizes.rows, sizes.columns)) if weights else None

    def loss(given: Any, spec: Any) -> float:
        if d_weights is None:
            return float((fovea.attention(*given.values(), **spec) * d_output).sum())
        out, own = fovea.attention(*given.values(), return_weights=True, **spec)
        return float((out * d_output).sum() + (own * d_weights).sum())

    got = fovea.gradients(*given.values(), d_output, d_weights=d_weights, **spec)
    arguments = {name for name in given if given[name] is not None}
    assert arguments <= set(got) or isinstance(spec.get("normalizer"), fovea.HardArgmax)
    for name, gradient in got.items():
        array = given[name] if name in given else array_of(spec, name)
        assert gradient.shape == array.shape and gradient.dtype == np.float64, name
        wanted = np.zeros_like(array)
        for index in np.ndindex(array.shape):
            sides = []
            for step in (1e-5, -1e-5):
                moved = array.copy()
                moved[index] += step
                if name in given:
                    sides.append(loss({**given, name: moved}, spec))
                else:
                    sides.append(loss(given, replaced(spec, name, moved)))
            wanted[index] = (sides[0] - sides[1]) / 2e-5
        error = float(np.abs(gradient - wanted).max(initial=0))
        assert error < 2e-8 * max(1.0, float(np.abs(wanted).max(initial=0))) * 100, f"{name}: error {error:.1e}"
    return got


@pytest.mark.parametrize("score", cases.SCORES)
def test_scores(rng: Any, score: str) -> None:
    got = check(rng, SMALL, score=cases.SCORES[score](rng, SMALL))
    made = {
        "score." + name for name, x in cases.SCORES[score](rng, SMALL)._fields().items() if x is not None
    }
    assert {name for name in got if name.startswith("score.")} == made


@pytest.mark.parametrize("mod", cases.MODS)
def test_mods(rng: Any, mod: str) -> None:
    check(rng, SMALL, mods=[cases.MODS[mod](rng, SMALL)])
    check(rng, SMALL, mods=[fovea.SoftCap(2), cases.MODS[mod](rng, SMALL)], mask=fovea.Causal())


@pytest.mark.parametrize("mod", cases.WEIGHT_MODS)
def test_weight_mods(rng: Any, mod: str) -> None:
    check(rng, SMALL, weight_mods=[cases.WEIGHT_MODS[mod](rng, SMALL)])


@pytest.mark.parametrize("normalizer", cases.NORMALIZERS)
def test_normalizers(rng: Any, normalizer: str) -> None:
    check(rng, SMALL, normalizer=cases.NORMALIZERS[normalizer](rng, SMALL))
    check(rng, SMALL, normalizer=cases.NORMALIZERS[normalizer](rng, SMALL), mask=fovea.Causal(), weights=True)


@pytest.mark.parametrize("mask", cases.MASKS)
def test_masks(rng: Any, mask: str) -> None:
    check(rng, SMALL, mask=cases.MASKS[mask](rng, SMALL))


def test_forget_gate(rng: Any) -> None:
    gate = fovea.ForgetGate.of(-rng.random((2, 2, 4)))
    got = check(rng, dataclasses.replace(SMALL, rows=4), mods=[gate], mask=fovea.Causal())
    assert {"mods[0].query", "mods[0].key"} <= set(got)


def test_everything_at_once(rng: Any) -> None:
    spec = dict(
        score=cases.SCORES["additive with b"](rng, SMALL),
        mods=[cases.MODS["alibi"](rng, SMALL), fovea.SoftCap(3), cases.MODS["relative"](rng, SMALL)],
        mask=fovea.Causal(),
        normalizer=fovea.SoftmaxWithSink([0.3, -0.2]),
        weight_mods=[cases.WEIGHT_MODS["gaussian"](rng, SMALL)],
    )
    got = check(rng, SMALL, weights=True, **spec)
    assert set(got) == {
        *("query", "key", "value", "score.W", "score.U", "score.v", "score.b", "normalizer.sink"),
        *("mods[0].slope", "mods[2].table", "weight_mods[0].center"),
    }


@pytest.mark.parametrize("seed", range(3))
def test_dropout(rng: Any, seed: int) -> None:
    check(rng, SMALL, dropout=0.5, seed=seed)


def test_additive_array_as_mask(rng: Any) -> None:
    bias = rng.standard_normal((2, 3, 4))
    q, k, v = cases.arrays(rng, SMALL, np.float64)
    as_mask = fovea.gradients(q, k, v, np.ones((2, 2, 3, 2)), mask=bias)
    as_mod = fovea.gradients(q, k, v, np.ones((2, 2, 3, 2)), mods=[fovea.DenseBias(bias)])
    assert as_mask["mods[0].bias"].shape == bias.shape
    assert all(np.array_equal(as_mask[name], as_mod[name]) for name in as_mod)


def test_loss_on_some_weights_alone(rng: Any) -> None:
    """Supervised alignments: a loss on the weights of one head and two rows, without values."""
    q, k, _ = cases.arrays(rng, SMALL, np.float64)
    some: dict[str, Any] = dict(weight_heads=[1], weight_rows=[2, 0])
    d_weights = rng.standard_normal((2, 1, 2, 4))
    got = fovea.gradients(q, k, None, None, d_weights=d_weights, **some)
    assert set(got) == {"query", "key"}
    for index in [(0, 1, 2, 3), (1, 1, 0, 5), (0, 0, 0, 0)]:
        up, down = q.copy(), q.copy()
        up[index] += 1e-5
        down[index] -= 1e-5
        sides = [float((fovea.attention(x, k, None, **some) * d_weights).sum()) for x in (up, down)]
        assert abs((sides[0] - sides[1]) / 2e-5 - got["query"][index]) < 1e-8


def test_score_function_of_a_sample(rng: Any) -> None:
    q, k, v = cases.arrays(rng, SMALL, np.float64)
    advantage = rng.standard_normal((2, 2, 3))
    spec: dict[str, Any] = dict(normalizer=fovea.HardSample(), seed=11)
    _, drawn = fovea.attention(q, k, v, return_weights=True, **spec)
    got = fovea.gradients(q, k, v, np.zeros((2, 2, 3, 2)), advantage=advantage, **spec)
    p = oracle.attention(q, k, v)[2]
    by_score = advantage[..., None] * (drawn - p) / np.sqrt(6)
    assert np.allclose(got["query"], by_score @ np.repeat(k, 2, 1), atol=1e-12)
    by_value = fovea.gradients(q, k, v, np.ones((2, 2, 3, 2)), advantage=advantage, **spec)["value"]
    assert np.allclose(by_value[:, 0], drawn.sum((1, 2))[..., None] * np.ones(2), atol=1e-12)


def test_straight_through(rng: Any) -> None:
    """dS = slope of softmax((s + noise) / T), whose rows sum to 0. The values' gradient goes to the drawn key."""
    q, k, v = cases.arrays(rng, SMALL, np.float64)
    spec: dict[str, Any] = dict(normalizer=fovea.GumbelSample(0.5), seed=4, score=fovea.Dot())
    _, drawn = fovea.attention(q, k, v, return_weights=True, **spec)
    got = fovea.gradients(q, k, v, np.ones((2, 2, 3, 2)), **spec)
    assert np.allclose(got["value"][:, 0], drawn.sum((1, 2))[..., None] * np.ones(2), atol=1e-12)
    same = np.broadcast_to(k[:, :, :1], k.shape)
    assert np.abs(fovea.gradients(q, same, v, rng.standard_normal((2, 2, 3, 2)), **spec)["query"]).max() < 1e-12
    assert np.abs(got["query"]).max() > 1e-6


@pytest.mark.parametrize("name", ["f32", "f16", "bf16"])
def test_other_dtypes(rng: Any, name: str) -> None:
    """Gradients are near those in float64, and each has the dtype of its array."""
    q, k, v = cases.arrays(rng, SMALL, cases.dtype(name))
    mods = [fovea.AlibiBias(np.array([0.5, 0.25], np.float32))]
    d_output = rng.standard_normal((2, 2, 3, 2)).astype(q.dtype)
    got = fovea.gradients(q, k, v, d_output, mods=mods, mask=fovea.Causal())
    doubles = (np.asarray(x, np.float64) for x in (q, k, v, d_output))
    wanted = fovea.gradients(*doubles, mods=mods, mask=fovea.Causal())
    for array, gradient in got.items():
        assert gradient.dtype == (np.float32 if array.startswith("mods") else q.dtype)
        most = np.abs(wanted[array]).max()
        assert np.abs(np.asarray(gradient, np.float64) - wanted[array]).max() < {"f32": 1e-5}.get(name, 0.03) * most


def test_strides(rng: Any) -> None:
    q, k, v = cases.arrays(rng, SMALL, np.float32)
    d_output = rng.standard_normal((2, 2, 3, 2)).astype(np.float32)
    wanted = fovea.gradients(q, k, v, d_output)
    got = fovea.gradients(*(np.asfortranarray(x) for x in (q, k, v, d_output)))
    assert all(np.array_equal(got[name], wanted[name]) for name in wanted)


def test_sizes_of_zero() -> None:
    for shape in ((0, 1, 2, 3), (1, 1, 0, 3)):
        q = np.ones(shape)
        got = fovea.gradients(q, q, q, q, mods=[fovea.AlibiBias([1.0])])
        assert got["query"].shape == shape and not got["mods[0].slope"].any()


@pytest.mark.parametrize("spec", [{"dropout": 0.5}, {"normalizer": fovea.GumbelSample()}], ids=["dropout", "sample"])
def test_what_was_drawn_has_to_be_said(rng: Any, spec: dict[str, Any]) -> None:
    """Another draw would give the derivatives of another call."""
    q = rng.standard_normal((1, 2, 4, 8)).astype("f4")
    with pytest.raises(fovea.InvalidArgument, match="gradients: seed: expected that of the call of attention"):
        fovea.gradients(q, q, q, q, **spec)
    once, again = (fovea.gradients(q, q, q, q, seed=3, **spec) for _ in range(2))
    assert all(np.array_equal(once[name], again[name]) for name in once)


def test_the_arguments_of_the_call_are_taken(rng: Any) -> None:
    """A loss of the output alone has the same derivatives whichever weights were returned beside it."""
    q = rng.standard_normal((1, 2, 4, 8)).astype("f4")
    whole = fovea.gradients(q, q, q, q, mask=fovea.Causal())
    for more in ({"weight_rows": [1]}, {"weight_heads": [0]}, {"precision": "higher"}):
        some = fovea.gradients(q, q, q, q, mask=fovea.Causal(), **more)
        assert some.keys() == whole.keys()
        for name, x in some.items():
            np.testing.assert_allclose(x, whole[name], rtol=1e-5, atol=1e-6)
    with pytest.raises(fovea.InvalidArgument, match="gradients: precision"):
        fovea.gradients(q, q, q, q, precision="fine")
