"""`fovea.selective_scan`, `fovea.causal_conv` and their gradients against loops over tokens in float64."""

from __future__ import annotations

from typing import Any

import cases
import numpy as np
import pytest

import fovea

BATCH, LENGTH, CHANNELS, GROUPS, STATES, WIDTH = 2, 23, 6, 2, 3, 4


def softplus(x: Any) -> Any:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def silu(x: Any) -> Any:
    return x / (1 + np.exp(-x))


def scan_arrays(rng: Any) -> dict[str, Any]:
    rows, groups = (BATCH, LENGTH, CHANNELS), (BATCH, LENGTH, GROUPS, STATES)
    return {
        "x": rng.standard_normal(rows),
        "delta": rng.standard_normal(rows),
        "a": -rng.random((CHANNELS, STATES)) - 0.1,
        "b": rng.standard_normal(groups),
        "c": rng.standard_normal(groups),
        "d": rng.standard_normal(CHANNELS),
        "z": rng.standard_normal(rows),
        "delta_bias": rng.standard_normal(CHANNELS),
        "initial_state": rng.standard_normal((BATCH, CHANNELS, STATES)),
    }


def conv_arrays(rng: Any) -> dict[str, Any]:
    return {
        "x": rng.standard_normal((BATCH, LENGTH, CHANNELS)),
        "weight": rng.standard_normal((CHANNELS, WIDTH)),
        "bias": rng.standard_normal(CHANNELS),
        "initial_state": rng.standard_normal((BATCH, WIDTH - 1, CHANNELS)),
    }


def scan(x: Any, delta: Any, a: Any, b: Any, c: Any, d: Any, z: Any, delta_bias: Any, initial_state: Any) -> Any:
    step = softplus(delta + delta_bias)
    b, c = (np.repeat(g, CHANNELS // GROUPS, axis=2) for g in (b, c))
    h, rows = initial_state.copy(), []
    for t in range(x.shape[1]):
        h = np.exp(step[:, t, :, None] * a) * h + step[:, t, :, None] * b[:, t] * x[:, t, :, None]
        rows.append((c[:, t] * h).sum(-1) + d * x[:, t])
    return np.stack(rows, 1) * silu(z), h


def conv(x: Any, weight: Any, bias: Any, initial_state: Any) -> Any:
    whole = np.concatenate([initial_state, x], 1)
    rows = [bias + (weight.T * whole[:, t : t + WIDTH]).sum(1) for t in range(x.shape[1])]
    return silu(np.stack(rows, 1)), whole[:, -(WIDTH - 1) :]


def call_scan(given: dict[str, Any], **more: Any) -> Any:
    first = [given[n] for n in ("x", "delta", "a", "b", "c")]
    rest = {n: x for n, x in given.items() if n not in ("x", "delta", "a", "b", "c")}
    return fovea.selective_scan(*first, **rest, **more)


def call_conv(given: dict[str, Any], **more: Any) -> Any:
    return fovea.causal_conv(given["x"], given["weight"], given.get("bias"), initial_state=given.get("initial_state"),
                             activation="silu", **more)


CALLS = {"scan": (scan_arrays, scan, call_scan), "conv": (conv_arrays, conv, call_conv)}


@pytest.mark.parametrize("kind", CALLS)
@pytest.mark.parametrize("dtype", cases.DTYPES)
def test_the_definition(rng: Any, kind: str, dtype: str) -> None:
    make, definition, call = CALLS[kind]
    stored = ("x", "delta", "b", "c", "z")
    of = cases.dtype(dtype)
    given = {n: x.astype(of) if n in stored else x for n, x in make(rng).items()}
    wanted, wanted_state = definition(**{n: np.asarray(x, np.float64) for n, x in given.items()})
    got, state = call(given, return_state=True)
    eps = {"f64": 1e-15, "f32": 1e-7, "bf16": 4e-3, "f16": 5e-4}[dtype]
    assert got.dtype == of and state.dtype == (np.float64 if dtype == "f64" else np.float32)
    limit = 40 * max(eps, 1e-15) * np.abs(wanted).max() + 1e-13
    assert np.abs(got.astype(np.float64) - wanted).max() <= limit
    assert np.abs(state - wanted_state).max() <= (1e-12 if dtype == "f64" else 1e-4)


@pytest.mark.parametrize("kind", CALLS)
def test_gradients_by_central_differences(rng: Any, kind: str) -> None:
    make, definition, _ = CALLS[kind]
    given = make(rng)
    d_output, d_state = (rng.standard_normal(x.shape) for x in definition(**given))
    first = ("x", "delta", "a", "b", "c") if kind == "scan" else ("x", "weight")
    rest = {n: x for n, x in given.items() if n not in first}
    gradients = fovea.selective_scan_gradients if kind == "scan" else fovea.causal_conv_gradients
    more = {} if kind == "scan" else {"activation": "silu"}
    found = gradients(*(given[n] for n in first), d_output, d_final_state=d_state, **rest, **more)
    assert found.keys() == given.keys()

    def loss() -> float:
        y, state = definition(**given)
        return float((y * d_output).sum() + (state * d_state).sum())

    for name, x in given.items():
        flat = x.reshape(-1)
        assert found[name].shape == x.shape
        for i in range(0, flat.size, 1 + flat.size // 7):
            at, h = flat[i], 1e-5
            flat[i] = at + h
            up = loss()
            flat[i] = at - h
            down = loss()
            flat[i] = at
            assert abs((up - down) / (2 * h) - found[name].reshape(-1)[i]) < 1e-6, name


@pytest.mark.parametrize("kind", CALLS)
def test_cuts_and_packed_sequences_keep_the_bits(rng: Any, kind: str) -> None:
    make, _, call = CALLS[kind]
    given = {n: x[:1] if n in ("x", "delta", "b", "c", "z", "initial_state") else x for n, x in make(rng).items()}
    tokens = ("x", "delta", "b", "c", "z")
    whole, state = call(given, return_state=True)

    def part(begin: int, end: int, before: Any) -> dict[str, Any]:
        cut = {n: x[:, begin:end] if n in tokens else x for n, x in given.items()}
        return {**cut, "initial_state": before}

    first, between = call(part(0, 9, given["initial_state"]), return_state=True)
    second, last = call(part(9, LENGTH, between), return_state=True)
    assert np.array_equal(np.concatenate([first, second], 1), whole) and np.array_equal(last, state)
    two = {**given, "initial_state": np.concatenate([given["initial_state"]] * 2)}
    packed = call(two, sequence_starts=[0, 9, LENGTH])
    assert np.array_equal(packed[:, :9], first)
    assert np.array_equal(packed[:, 9:], call(part(9, LENGTH, given["initial_state"])))


def test_padding_is_never_read(rng: Any) -> None:
    given = conv_arrays(rng)
    present = np.ones((BATCH, LENGTH), bool)
    present[0, -5:] = False
    given["x"][0, -5:] = np.nan
    got = call_conv(given, present=present)
    assert np.isfinite(got).all() and (got[0, -5:] == 0).all()


def test_errors(rng: Any) -> None:
    g = scan_arrays(rng)
    with pytest.raises(fovea.InvalidArgument, match="selective_scan: b: expected an array of 4 axes"):
        fovea.selective_scan(g["x"], g["delta"], g["a"], g["b"][:, :, 0], g["c"])
    with pytest.raises(fovea.InvalidArgument, match="step_size"):
        fovea.selective_scan(g["x"], g["delta"], g["a"], g["b"], g["c"], step_size="exp")
    with pytest.raises(fovea.InvalidArgument, match="selective_scan: a: "):
        fovea.selective_scan(g["x"], g["delta"], -g["a"], g["b"], g["c"])
    with pytest.raises(fovea.InvalidArgument, match="selective_scan: delta: "):
        fovea.selective_scan(g["x"], g["delta"][:, :-1], g["a"], g["b"], g["c"])
    with pytest.raises(fovea.InvalidArgument, match="activation"):
        fovea.causal_conv(g["x"], np.ones((CHANNELS, 4)), activation="relu")
    with pytest.raises(fovea.InvalidArgument, match="causal_conv"):
        fovea.causal_conv(g["x"], np.ones((CHANNELS, 9)))
    with pytest.raises(fovea.InvalidArgument, match="d_output"):
        fovea.causal_conv_gradients(g["x"], np.ones((CHANNELS, 4)), None)


def test_errors_name_the_function_that_was_called(rng: Any) -> None:
    g, weight = scan_arrays(rng), np.ones((CHANNELS, 4))
    scan = (g["x"], g["delta"], g["a"], g["b"], g["c"])
    for says, call in (
        ("selective_scan_gradients: b: ", lambda: fovea.selective_scan_gradients(*scan[:3], g["b"][:, :, 0], g["c"], g["x"])),
        ("selective_scan_gradients: d_output: ", lambda: fovea.selective_scan_gradients(*scan, g["x"][:, :3])),
        ("causal_conv_gradients: bias: ", lambda: fovea.causal_conv_gradients(g["x"], weight, g["x"], bias=np.ones(1))),
        ("causal_conv: sequence_starts: ", lambda: fovea.causal_conv(g["x"], weight, sequence_starts="ab")),
        ("causal_conv: sequence_starts: ", lambda: fovea.causal_conv(g["x"], weight, sequence_starts=[])),
        ("selective_scan: return_state: expected True or False", lambda: fovea.selective_scan(*scan, return_state=np.ones(2))),
        ("causal_conv: activation: ", lambda: fovea.causal_conv(g["x"], weight, activation=np.ones(3))),  # type: ignore[arg-type]
    ):
        with pytest.raises(fovea.InvalidArgument) as caught:
            call()
        assert str(caught.value).startswith(says), caught.value


def test_present_has_the_shape_of_the_tokens(rng: Any) -> None:
    """As many truth values in another order would hide other tokens."""
    g = scan_arrays(rng)
    turned = np.ones((LENGTH, BATCH), bool)
    with pytest.raises(fovea.InvalidArgument, match=r"selective_scan: present: expected .* \[2, 23\], got bool \[23, 2\]"):
        call_scan(g, present=turned)
    with pytest.raises(fovea.InvalidArgument, match=r"causal_conv: present: expected .* \[2, 23\], got bool \[46\]"):
        call_conv(conv_arrays(rng), present=turned.ravel())
