"""`fovea.recurrence` and its gradients against their definition in float64."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import cases
import numpy as np
import pytest
import recurrence_oracle as oracle
from recurrence_oracle import Sizes

import fovea

SHAPES = {
    "grouped": Sizes(),
    "one": Sizes(1, 1, 1, 1, 1, 3, 2),
    "more queries": Sizes(1, 4, 1, 2, 33, 8, 9),
    "alike": Sizes(2, 2, 2, 2, 40, 16, 4),
    "no tokens": Sizes(1, 2, 2, 2, 0, 4, 4),
}


def stored(spec: dict[str, Any], kind: Any) -> dict[str, Any]:
    """The spec with the arrays that a call wants in the dtype of the keys."""
    write = spec.get("write")
    names = [n for n in ("erase", "a", "b") if getattr(write, n, None) is not None]
    if not names:
        return spec
    return {**spec, "write": dataclasses.replace(write, **{n: getattr(write, n).astype(kind) for n in names})}


def state_of(rng: Any, s: Sizes, spec: dict[str, Any]) -> Any:
    columns = s.value_dim + isinstance(spec.get("normalizer"), fovea.KeySum)
    return rng.random((s.batch, s.heads, s.key_dim, columns))


@pytest.mark.parametrize("parts", oracle.grid(), ids=", ".join)
def test_every_part(rng: Any, parts: Any) -> None:
    for name, sizes in SHAPES.items():
        spec = oracle.make(rng, sizes, *parts)
        given, state = oracle.arrays(rng, sizes), state_of(rng, sizes, spec)
        wanted, wanted_state = oracle.recurrence(*given, initial_state=state, **spec)
        got, got_state = fovea.recurrence(*given, initial_state=state, return_state=True, **spec)
        limit = oracle.tolerance("f64", sizes, wanted)
        assert got.shape == wanted.shape and got.dtype == np.float64
        assert np.abs(got - wanted).max(initial=0) <= limit, name
        assert np.abs(got_state - wanted_state).max(initial=0) <= oracle.tolerance("f64", sizes, wanted_state), name
        assert np.array_equal(fovea.recurrence(*given, initial_state=state, **spec), got), "the state changes nothing"


@pytest.mark.parametrize("dtype", cases.DTYPES)
@pytest.mark.parametrize("parts", [("key", "delta of both", "self-weight", "plain"), ("scalar", "low rank", "after", "plain")])
def test_dtypes(rng: Any, dtype: str, parts: Any) -> None:
    sizes, kind = Sizes(length=50), cases.dtype(dtype)
    spec = stored(oracle.make(rng, sizes, *parts), kind)
    given = tuple(x.astype(kind) for x in oracle.arrays(rng, sizes))
    wanted, wanted_state = oracle.recurrence(*given, **spec)
    got, state = fovea.recurrence(*given, return_state=True, **spec)
    assert got.dtype == kind and state.dtype == (np.float64 if dtype == "f64" else np.float32)
    assert np.abs(got.astype("f8") - wanted).max() <= oracle.tolerance(dtype, sizes, wanted)


def test_the_scale_and_the_defaults(rng: Any) -> None:
    q, k, v = oracle.arrays(rng, Sizes())
    default = fovea.recurrence(q, k, v)
    assert np.array_equal(fovea.recurrence(q, k, v, scale=1 / math.sqrt(6)), default)
    assert np.allclose(fovea.recurrence(q, k, v, scale=1.0), default * math.sqrt(6))
    plain = dict(decay=fovea.NoDecay(), write=fovea.AdditiveWrite(), read=fovea.AfterWrite(),
                 normalizer=fovea.NoNormalizer(), feature_map=fovea.IdentityFeatures())
    assert np.array_equal(fovea.recurrence(q, k, v, **plain), default)


def test_layouts(rng: Any) -> None:
    """Heads inside of tokens, and an innermost axis that is not contiguous."""
    sizes = Sizes(query_heads=4)
    q, k, v = oracle.arrays(rng, sizes)
    spec = oracle.make(rng, sizes, "key", "delta of both", "after", "plain")
    wanted = fovea.recurrence(q, k, v, **spec)
    inside = (np.ascontiguousarray(x.transpose(0, 2, 1, 3)).transpose(0, 2, 1, 3) for x in (q, k, v))
    assert np.array_equal(fovea.recurrence(*inside, **spec), wanted)
    strided = (np.asfortranarray(x) for x in (q, k, v))
    assert np.array_equal(fovea.recurrence(*strided, **spec), wanted)
    lists = {**spec, "decay": fovea.KeyDecay(spec["decay"].log_decay.tolist())}
    assert np.array_equal(fovea.recurrence(q, k, v, **lists), wanted)


@pytest.mark.parametrize("cut", [0, 1, 16, 17, 40])
@pytest.mark.parametrize("parts", [("key", "delta of beta", "after", "plain"), ("constant", "additive", "before", "sums")])
def test_a_cut_anywhere(rng: Any, cut: int, parts: Any) -> None:
    sizes = Sizes(length=40)
    spec = oracle.make(rng, sizes, *parts)
    q, k, v = oracle.arrays(rng, sizes)
    wanted, wanted_state = fovea.recurrence(q, k, v, return_state=True, **spec)

    def some(x: Any, begin: int, end: int) -> Any:
        """A spec's part, or an array, of these tokens."""
        if isinstance(x, np.ndarray):
            return x[:, :, begin:end] if x.ndim > 2 else x
        return dataclasses.replace(x, **{n: some(a, begin, end) for n, a in x._arrays().items()}) if x._arrays() else x

    outputs, state = [], None
    for begin, end in ((0, cut), (cut, 40)):
        part = {name: some(x, begin, end) for name, x in spec.items()}
        out, state = fovea.recurrence(
            *(some(x, begin, end) for x in (q, k, v)), initial_state=state, return_state=True, **part
        )
        outputs.append(out)
    limit = oracle.tolerance("f64", sizes, wanted)
    assert np.abs(np.concatenate(outputs, 2) - wanted).max() <= limit
    assert np.abs(state - wanted_state).max() <= limit * max(1, np.abs(wanted_state).max())
    if cut % 16 == 0 and cut < 40:  # a multiple of every kernel's chunk
        assert np.array_equal(np.concatenate(outputs, 2), wanted) and np.array_equal(state, wanted_state)


def test_the_state_where_it_is(rng: Any) -> None:
    sizes = Sizes()
    q, k, v = oracle.arrays(rng, sizes)
    state = state_of(rng, sizes, {})
    wanted, after = fovea.recurrence(q, k, v, initial_state=state, return_state=True)
    out = np.empty_like(wanted)
    got = fovea.recurrence(q, k, v, initial_state=state, final_state=state, out=out)
    assert got[0] is out and got[1] is state
    assert np.array_equal(out, wanted) and np.array_equal(state, after)
    assert np.array_equal(fovea.recurrence(None, k, v, return_state=True), fovea.recurrence(q, k, v, return_state=True)[1])


@pytest.mark.parametrize("starts", [[0, 19], [0, 5, 5, 19], [0, 16, 17, 19], [0, 0, 19, 19]])
def test_packed_sequences_are_those_alone(rng: Any, starts: list[int]) -> None:
    sizes = Sizes(batch=1)
    spec = oracle.make(rng, sizes, "key", "delta of both", "before", "plain")
    q, k, v = oracle.arrays(rng, sizes)
    states = rng.random((len(starts) - 1, 4, 6, 5))
    got, got_states = fovea.recurrence(
        q, k, v, initial_state=states, sequence_starts=np.array(starts), return_state=True, **spec
    )
    for n, (begin, end) in enumerate(zip(starts, starts[1:])):
        part = {
            "decay": fovea.KeyDecay(spec["decay"].log_decay[:, :, begin:end]),
            "write": fovea.DeltaWrite(*(x[:, :, begin:end] for x in (spec["write"].beta, spec["write"].erase))),
            "read": spec["read"],
        }
        alone, state = fovea.recurrence(
            *(x[:, :, begin:end] for x in (q, k, v)), initial_state=states[n : n + 1], return_state=True, **part
        )
        # A call of at most 4 tokens has a kernel of its own, which sums in another order: here at most 19 terms of
        # size 1 each in double, so 1e-13 is a hundred times what rounding explains.
        same = np.array_equal if end - begin > 4 else lambda a, b: np.allclose(a, b, rtol=0, atol=1e-13)
        assert same(got[:, :, begin:end], alone) and same(got_states[n : n + 1], state)


@pytest.mark.parametrize("kind", [bool, np.int64, np.uint8])
def test_padding_is_never_read(rng: Any, kind: type) -> None:
    sizes = Sizes()
    spec = oracle.make(rng, sizes, "scalar", "delta of beta", "after", "plain")
    q, k, v = oracle.arrays(rng, sizes)
    present = (rng.random((2, 19)) < 0.6).astype(kind)
    wanted, wanted_state = oracle.recurrence(q, k, v, present=present, **spec)
    d_output = rng.standard_normal(wanted.shape)
    hidden = ~present.astype(bool)[:, None, :, None]
    for x in (q, k, v):
        x[np.broadcast_to(hidden, x.shape)] = np.nan
    got, state = fovea.recurrence(q, k, v, present=present, return_state=True, **spec)
    assert np.abs(got - wanted).max() < 1e-13 and np.abs(state - wanted_state).max() < 1e-13
    assert not got[np.broadcast_to(hidden, got.shape)].any()
    found = fovea.recurrence_gradients(q, k, v, d_output, present=present, **spec)
    assert all(np.isfinite(x).all() for x in found.values())
    assert not found["value"][np.broadcast_to(hidden, v.shape)].any()
    assert not found["decay.log_decay"][np.broadcast_to(hidden[..., 0], (2, 4, 19))].any()


@pytest.mark.parametrize("decay", ["none", "constant", "scalar", "key"])
@pytest.mark.parametrize("write", ["plain", "delta"])
@pytest.mark.parametrize("argument", ["query", "key", "value", "write.beta", "decay.log_decay"])
def test_how_far_a_nan_reaches(rng: Any, decay: str, write: str, argument: str) -> None:
    """As docs/recurrence.md says: back to the first token of its chunk at most, and to no other head."""
    at, heads, length = 21, 2, 52
    q, k, v = (rng.standard_normal((1, heads, length, 8)).astype(np.float32) for _ in range(3))
    k /= np.linalg.norm(k, axis=-1, keepdims=True)
    shape = {"constant": (heads,), "scalar": (1, heads, length), "key": (1, heads, length, 8)}.get(decay, (0,))
    gates, beta = np.full(shape, -0.05, np.float32), np.full((1, heads, length), 0.5, np.float32)
    arrays = {"query": q, "key": k, "value": v, "write.beta": beta, "decay.log_decay": gates}
    if argument == "write.beta" and write == "plain" or argument == "decay.log_decay" and decay in ("none", "constant"):
        pytest.skip("no such numbers for each token")
    spec: dict[str, Any] = {"write": fovea.DeltaWrite(beta) if write == "delta" else None}
    kinds = {"constant": fovea.ConstantDecay, "scalar": fovea.ScalarDecay, "key": fovea.KeyDecay}
    spec["decay"] = kinds[decay](gates) if decay in kinds else None
    wanted = fovea.recurrence(q, k, v, **spec)
    arrays[argument][0, 0, at] = np.nan
    got = fovea.recurrence(q, k, v, **spec)
    reached, first = np.isnan(got[0, 0]).any(-1), at // 16 * 16
    assert np.array_equal(got[0, 1], wanted[0, 1])
    if argument == "query" or argument == "decay.log_decay" and write == "plain":
        first = at
    # A chunk with such a gate multiplies its decays in another order.
    assert np.allclose(got[0, 0, :first], wanted[0, 0, :first], rtol=1e-5, atol=1e-5)
    assert np.array_equal(got[0, 0, : at // 16 * 16], wanted[0, 0, : at // 16 * 16])
    if argument == "query":
        assert np.flatnonzero(reached).tolist() == [at]
        return
    assert reached[at:].all()
    if argument == "value" and "chunked" in fovea.explain_recurrence(q, k, v, **spec).partition(";")[0]:
        assert reached[first:].all()


def test_threads_change_no_bit(rng: Any) -> None:
    sizes = Sizes(length=200)
    spec = oracle.make(rng, sizes, "key", "low rank", "after", "plain")
    given = oracle.arrays(rng, sizes)
    fovea.set_num_threads(1)
    before = fovea.recurrence(*given, **spec)
    gradients = fovea.recurrence_gradients(*given, before, **spec)
    fovea.set_num_threads(3)
    assert np.array_equal(fovea.recurrence(*given, **spec), before)
    again = fovea.recurrence_gradients(*given, before, **spec)
    assert all(np.array_equal(again[name], x) for name, x in gradients.items())


# Gradients.


def replaced(given: dict[str, Any], spec: dict[str, Any], name: str, array: Any) -> tuple[Any, Any]:
    whole, _, field = name.partition(".")
    if not field:
        return {**given, name: array}, spec
    return given, {**spec, whole: dataclasses.replace(spec[whole], **{field: array})}


@pytest.mark.parametrize("parts", oracle.grid(), ids=", ".join)
def test_gradients_are_central_differences(rng: Any, parts: Any) -> None:
    """Of every array by its name. The third derivatives of these small cases are of the size of the first, so a step of
    1e-4 leaves 1e-8, and rounding 1e-16 / 1e-4."""
    sizes = Sizes(1, 2, 1, 2, 4, 2, 3)
    spec = oracle.make(rng, sizes, *parts)
    if parts[0] != "no decay":  # of e^-30 there is nothing to see
        gate = spec["decay"].log_decay
        spec["decay"] = dataclasses.replace(spec["decay"], log_decay=np.maximum(gate, -1.0))
    given: dict[str, Any] = dict(zip(("query", "key", "value"), oracle.arrays(rng, sizes)))
    given["initial_state"] = state_of(rng, sizes, spec)
    shape = (1, 2, 4, 3)
    d_output, d_state = rng.standard_normal(shape), rng.standard_normal(given["initial_state"].shape)

    def loss(given: Any, spec: Any) -> float:
        out, state = fovea.recurrence(
            *list(given.values())[:3], initial_state=given["initial_state"], return_state=True, **spec
        )
        return float((out * d_output).sum() + (state * d_state).sum())

    found = fovea.recurrence_gradients(
        *list(given.values())[:3], d_output, d_final_state=d_state, initial_state=given["initial_state"], **spec
    )
    names = {*given, *(f"{part}.{name}" for part, x in spec.items() for name in x._arrays())}
    assert set(found) == names
    for name, gradient in found.items():
        whole, _, field = name.partition(".")
        array = np.asarray(getattr(spec[whole], field) if field else given[name], np.float64)
        assert gradient.shape == array.shape and gradient.dtype == np.float64, name
        for index in np.ndindex(array.shape):
            ends = []
            for step in (1e-4, -1e-4):
                moved = array.copy()
                moved[index] += step
                ends.append(loss(*replaced(given, spec, name, moved)))
            wanted = (ends[0] - ends[1]) / 2e-4
            assert abs(gradient[index] - wanted) <= 1e-6 * max(1, abs(wanted)), (name, index)


@pytest.mark.parametrize("parts", oracle.grid(), ids=", ".join)
def test_gradients_of_the_state_alone(rng: Any, parts: Any) -> None:
    """No derivative by the output is one of 0, for every array."""
    sizes = Sizes(length=20)
    spec = oracle.make(rng, sizes, *parts)
    given, state = oracle.arrays(rng, sizes), state_of(rng, sizes, spec)
    d_state, zero = rng.standard_normal(state.shape), np.zeros((2, 4, 20, 5))
    found = fovea.recurrence_gradients(*given, None, d_final_state=d_state, initial_state=state, **spec)
    wanted = fovea.recurrence_gradients(*given, zero, d_final_state=d_state, initial_state=state, **spec)
    assert not found["query"].any() and found["key"].any() and found["value"].any()
    for name, x in found.items():
        assert np.abs(x - wanted[name]).max() <= oracle.tolerance("f64", sizes, wanted[name]), name


def test_gradients_have_the_dtypes_of_their_arrays(rng: Any) -> None:
    sizes = Sizes()
    kind = np.float16
    spec = stored(oracle.make(rng, sizes, "scalar", "delta of both", "after", "plain"), kind)
    q, k, v = (x.astype(kind) for x in oracle.arrays(rng, sizes))
    out = fovea.recurrence(q, k, v, **spec)
    found = {name: x.dtype for name, x in fovea.recurrence_gradients(q, k, v, out, **spec).items()}
    wide = {"decay.log_decay", "write.beta"}
    assert found == {n: np.float32 if n in wide else kind for n in ("query", "key", "value", "write.erase", *sorted(wide))}


# What is explained and refused.


def test_explain() -> None:
    q = np.ones((1, 2, 4, 8), np.float32)
    said = fovea.explain_recurrence(q, q, q, decay=fovea.ScalarDecay(np.zeros((1, 2, 4))), write=fovea.DeltaWrite(1), scale=1)
    kernel, spec, sizes = said.split("\n")[:1] + said.split("\n")[-2:]
    # The best, or the one that FOVEA_ISA forces; behind it those that refused, on a CPU without their instructions.
    assert kernel.split("; refused ")[0] in fovea.list_recurrence_kernels()
    assert spec.startswith("scalar decay, delta write, read after write") and "4 tokens" in sizes


def test_values_print_as_code() -> None:
    parts = [fovea.KeySum(), fovea.KeySum(0.5), fovea.DeltaWrite([[[1.0]]]), fovea.EluPlusOne(), fovea.ConstantDecay([0.0])]
    assert [eval(repr(part)) for part in parts] == parts
    assert repr(fovea.KeySum(0.5)) == "fovea.KeySum(0.5)"
