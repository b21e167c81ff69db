"""Recurrences in float64 by their definition, one token at a time, and the values of their parts for the grids of the
tests. It shares no code with the package, but reads the fields of its values."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any, Callable

import numpy as np

import fovea


@dataclasses.dataclass(frozen=True)
class Sizes:
    batch: int = 2
    query_heads: int = 2
    key_heads: int = 1
    heads: int = 4
    length: int = 19
    key_dim: int = 6
    value_dim: int = 5


def gates(rng: Any, *shape: int) -> Any:
    """Logarithms of decays, some of them strong."""
    g = -np.abs(rng.standard_normal(shape)) * 0.5
    return np.where(rng.random(shape) < 0.1, -30.0, g)


def _betas(rng: Any, s: Sizes) -> Any:
    return rng.random((s.batch, s.heads, s.length))


def _rows(rng: Any, s: Sizes, size: float = 0.3) -> Any:
    return size * rng.standard_normal((s.batch, s.heads, s.length, s.key_dim))


Make = Callable[[Any, Sizes], Any]

DECAYS: dict[str, Make] = {
    "no decay": lambda r, s: fovea.NoDecay(),
    "constant": lambda r, s: fovea.ConstantDecay(gates(r, s.heads)),
    "scalar": lambda r, s: fovea.ScalarDecay(gates(r, s.batch, s.heads, s.length)),
    "key": lambda r, s: fovea.KeyDecay(gates(r, s.batch, s.heads, s.length, s.key_dim)),
}
WRITES: dict[str, Make] = {
    "additive": lambda r, s: fovea.AdditiveWrite(),
    "delta of beta": lambda r, s: fovea.DeltaWrite(_betas(r, s)),
    "delta of erase": lambda r, s: fovea.DeltaWrite(erase=_rows(r, s)),
    "delta of both": lambda r, s: fovea.DeltaWrite(_betas(r, s), _rows(r, s)),
    "low rank": lambda r, s: fovea.DiagonalPlusLowRankWrite(_rows(r, s), _rows(r, s)),
}
READS: dict[str, Make] = {
    "after": lambda r, s: fovea.AfterWrite(),
    "before": lambda r, s: fovea.BeforeDecay(r.standard_normal((s.heads, s.key_dim))),
    "self-weight": lambda r, s: fovea.SelfWeight(r.standard_normal((s.batch, s.heads, s.length))),
}
NORMALIZERS: dict[str, Make] = {
    "plain": lambda r, s: fovea.NoNormalizer(),
    "sums": lambda r, s: fovea.KeySum(0.5),
}


def arrays(rng: Any, s: Sizes) -> tuple[Any, Any, Any]:
    """Query, key and value; keys are short, so that the states of delta writes stay bounded."""
    q = rng.standard_normal((s.batch, s.query_heads, s.length, s.key_dim))
    k = 0.4 * rng.standard_normal((s.batch, s.key_heads, s.length, s.key_dim))
    return q, k, rng.standard_normal((s.batch, s.heads, s.length, s.value_dim))


def make(rng: Any, s: Sizes, decay: str, write: str, read: str, normalizer: str) -> dict[str, Any]:
    """The spec of these names. Sums of keys have the features that they need."""
    spec = {"decay": DECAYS[decay], "write": WRITES[write], "read": READS[read], "normalizer": NORMALIZERS[normalizer]}
    made = {name: of(rng, s) for name, of in spec.items()}
    if normalizer == "sums":
        # Weights and writes of either sign would let the sum come near 0.
        made["feature_map"] = fovea.EluPlusOne()
        made["write"] = fovea.DeltaWrite(0.1 * _betas(rng, s)) if write.startswith("delta") else fovea.AdditiveWrite()
        if read != "after":
            bonus = isinstance(made["read"], fovea.BeforeDecay)
            shape = (s.heads, s.key_dim) if bonus else (s.batch, s.heads, s.length)
            made["read"] = type(made["read"])(rng.random(shape))
    return made


def grid() -> list[tuple[str, str, str, str]]:
    """Every two levels of every two parts occur together."""
    names = [list(part) for part in (DECAYS, WRITES, READS, NORMALIZERS)]
    wanted = {
        (a, x, b, y)
        for a, b in itertools.combinations(range(4), 2)
        for x in range(len(names[a]))
        for y in range(len(names[b]))
    }
    every = list(itertools.product(*(range(len(n)) for n in names)))
    chosen = []
    while wanted:
        best = max(every, key=lambda row: sum((a, row[a], b, row[b]) in wanted for a, b in itertools.combinations(range(4), 2)))
        wanted -= {(a, best[a], b, best[b]) for a, b in itertools.combinations(range(4), 2)}
        chosen.append(tuple(names[n][level] for n, level in enumerate(best)))
    return chosen  # type: ignore[return-value]


def _features(x: Any, feature_map: Any) -> Any:
    if isinstance(feature_map, fovea.EluPlusOne):
        return np.where(x > 0, x + 1, np.exp(np.minimum(x, 0)))
    return x


def recurrence(query: Any, key: Any, value: Any, *, initial_state: Any = None, present: Any = None, **spec: Any) -> Any:
    """(output, final state), float64."""
    q, k, v = (np.asarray(x, np.float64) for x in (query, key, value))
    q, k = (_features(x, spec.get("feature_map")) for x in (q, k))
    q = q * (q.shape[-1] ** -0.5 if spec.get("scale") is None else spec["scale"])
    batch, heads, length, dim = v.shape
    normalizer = spec.get("normalizer")
    if isinstance(normalizer, fovea.KeySum):
        v = np.concatenate([v, np.ones((batch, heads, length, 1))], -1)
    out_heads = max(q.shape[1], heads)
    output = np.zeros((batch, out_heads, length, v.shape[-1]))
    state = np.zeros((batch, heads, k.shape[-1], v.shape[-1]))
    if initial_state is not None:
        state += np.asarray(initial_state, np.float64)
    for b, h, i in itertools.product(range(batch), range(heads), range(length)):
        if present is not None and not present[b][i]:
            continue
        row_k, y = k[b, h // (heads // k.shape[1]), i], v[b, h, i]
        before = state[b, h].copy()
        decayed = _decay(spec.get("decay"), b, h, i) * before
        state[b, h], y = _written(spec.get("write"), before, decayed, row_k, y, (b, h, i))
        for head in _query_heads(h, heads, out_heads):
            row_q = q[b, head // (out_heads // q.shape[1]), i]
            seen = _read(spec.get("read"), before, decayed, state[b, h], row_k, y, (b, h, i))
            output[b, head, i] = row_q @ seen
    if isinstance(normalizer, fovea.KeySum):
        some = np.ones((batch, 1, length, 1), bool) if present is None else np.asarray(present, bool)[:, None, :, None]
        sums = np.where(some, output[..., -1:] + normalizer.epsilon, 1)
        output = output[..., :-1] / sums
    return output, state


def _query_heads(h: int, heads: int, out_heads: int) -> range:
    """The heads of the output that read the state head h."""
    group = out_heads // heads
    return range(h * group, (h + 1) * group)


def _decay(decay: Any, b: int, h: int, i: int) -> Any:
    if isinstance(decay, fovea.ConstantDecay):
        return np.exp(np.asarray(decay.log_decay, np.float64)[h])
    if isinstance(decay, fovea.ScalarDecay):
        return np.exp(np.asarray(decay.log_decay, np.float64)[b, h, i])
    if isinstance(decay, fovea.KeyDecay):
        return np.exp(np.asarray(decay.log_decay, np.float64)[b, h, i])[:, None]
    return 1.0


def _written(write: Any, before: Any, decayed: Any, k: Any, y: Any, at: Any) -> tuple[Any, Any]:
    """(the state, the target that a read of the token's own pair takes)."""
    if isinstance(write, fovea.DeltaWrite):
        beta = 1.0 if write.beta is None else np.asarray(write.beta, np.float64)[at]
        erase = k if write.erase is None else np.asarray(write.erase, np.float64)[at]
        y = beta * y
        return decayed + np.outer(k, y - decayed.T @ (beta * erase)), y
    if isinstance(write, fovea.DiagonalPlusLowRankWrite):
        a, low = np.asarray(write.a, np.float64)[at], np.asarray(write.b, np.float64)[at]
        return decayed + np.outer(low, before.T @ a) + np.outer(k, y), y
    return decayed + np.outer(k, y), y


def _read(read: Any, before: Any, decayed: Any, after: Any, k: Any, y: Any, at: Any) -> Any:
    if isinstance(read, fovea.BeforeDecay):
        return before + np.outer(np.asarray(read.bonus, np.float64)[at[1]] * k, y)
    if isinstance(read, fovea.SelfWeight):
        return decayed + np.asarray(read.self_weight, np.float64)[at] * np.outer(k, y)
    return after


def tolerance(dtype: str, sizes: Sizes, wanted: Any) -> float:
    """A result is a sum of key_dim products, each of a sum over the tokens before it, in f32 (f64); operands and results
    are rounded to the dtype once. Rounding errors of a sum of n terms stay below n·eps of the sum of their sizes, here
    at most 4 times the largest result (keys are short and values normal)."""
    stored = {"f64": 2.0**-53, "f32": 2.0**-24, "f16": 2.0**-11, "bf16": 2.0**-8}[dtype]
    wide = 2.0**-53 if dtype == "f64" else 2.0**-24
    largest = max(1.0, float(np.abs(wanted).max(initial=0)))
    return (4 * (sizes.key_dim + sizes.length) * wide + 4 * stored) * largest
