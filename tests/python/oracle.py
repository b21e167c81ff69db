"""Attention in float64 by the definitions, one query at a time: the engine is compared with it. It shares no code with
the package, but reads the fields of its values."""

from __future__ import annotations

import itertools
import math
from typing import Any, Optional

import numpy as np

import fovea


def attention(
    query: Any,
    key: Any,
    value: Any,
    *,
    score: Any = None,
    mods: Any = (),
    mask: Any = None,
    normalizer: Any = None,
    scale: Optional[float] = None,
    weight_mods: Any = (),
    query_offset: Optional[int] = None,
) -> tuple[Any, Any, Any]:
    """Output, log-sum-exp and weights."""
    q = np.asarray(query, np.float64)
    batch, heads, rows, dim = q.shape
    columns = _key_len(score, key, value)
    k = None if key is None else _repeated(key, heads)
    score = score or fovea.ScaledDot()
    normalizer = normalizer or fovea.Softmax()
    offset = columns - rows if query_offset is None else query_offset
    if scale is None:
        scale = 1 / math.sqrt(dim) if isinstance(score, (fovea.ScaledDot, fovea.QkNorm)) else 1.0
    weights = np.zeros((batch, heads, rows, columns))
    lse = np.full((batch, heads, rows), -np.inf)
    for b, h in itertools.product(range(batch), range(heads)):
        covered = np.zeros(columns)
        for i in range(rows):
            place = (b, h, i, i + offset, columns)
            s = scale * _scores(score, q[b, h, i], None if k is None else k[b, h], h, covered, columns)
            for mod in mods:
                s = _mod(mod, s, place)
            seen = np.array([visible(mask, b, h, i, i + offset, j) for j in range(columns)], bool)
            count = int(seen.sum())  # by the mask alone, whatever scores of -inf hide
            seen &= s > -np.inf
            if seen.any():
                weights[b, h, i, seen], lse[b, h, i] = normalised(normalizer, s[seen], h, count)
            for mod in weight_mods:
                weights[b, h, i] *= _mod(mod, np.ones(columns), place)
            covered = covered + weights[b, h, i]
    output = None if value is None else weights @ _repeated(value, heads)
    return output, lse, weights


def _key_len(score: Any, key: Any, value: Any) -> int:
    for array in (key, value):
        if array is not None:
            return int(array.shape[2])
    return int(np.shape(score.W)[0])


def _repeated(x: Any, heads: int) -> Any:
    x = np.asarray(x, np.float64)
    return np.repeat(x, heads // max(1, x.shape[1]), axis=1)


def _f64(x: Any) -> Any:
    return np.asarray(x, np.float64)


def _scores(score: Any, q: Any, k: Any, head: int, covered: Any, columns: int) -> Any:
    """The scores of one query and all keys, before the scale."""
    if isinstance(score, (fovea.Dot, fovea.ScaledDot)):
        return k @ q
    if isinstance(score, fovea.Bilinear):
        W = _f64(score.W)
        return k @ ((W[head] if W.ndim == 3 else W) @ q)
    if isinstance(score, fovea.Biaffine):
        return k @ (_f64(score.W)[head] @ q + _f64(score.b))
    if isinstance(score, fovea.LowRankBilinear):
        return (k @ _f64(score.U).T) @ (_f64(score.W) @ q)
    if isinstance(score, fovea.Cosine):
        unit = lambda x: x / np.linalg.norm(x, axis=-1, keepdims=True)  # noqa: E731
        return unit(k) @ unit(q) / max(_f64(score.temperature)[head], 0.01)
    if isinstance(score, fovea.QkNorm):
        rms = lambda x: np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6)  # noqa: E731
        return (_f64(score.key_gain) * k / rms(k)) @ (_f64(score.query_gain) * q / rms(q))
    if isinstance(score, fovea.Location):
        return (_f64(score.W) @ q)[:columns]
    if isinstance(score, fovea.Concat):
        W = _f64(score.W)
        joined = np.concatenate([np.broadcast_to(q, (columns, q.size)), k], axis=1)
        return np.tanh(joined @ W.T) @ _f64(score.v)
    inner = (q if score.W is None else _f64(score.W) @ q) + (k if score.U is None else k @ _f64(score.U).T)
    if score.b is not None:
        inner = inner + _f64(score.b)
    if isinstance(score, fovea.Coverage):
        inner = inner + covered[:, None] * _f64(score.w)
    return np.tanh(inner) @ _f64(score.v)


def at(array: Any, axes: str, b: int, h: int, i: int, columns: int) -> Any:
    """The numbers of a mod's array for one query: one for each key. `axes` are the axes of "bhqk" that the array may have; its own
    axes are the last of them."""
    array = _f64(array)
    own = axes[len(axes) - array.ndim :]
    index = tuple(
        slice(None) if name == "k" else (0 if n == 1 else {"b": b, "h": h, "q": i}[name])
        for name, n in zip(own, array.shape)
    )
    return array[index]


def _mod(mod: Any, s: Any, place: tuple[int, int, int, int, int]) -> Any:
    b, h, i, position, columns = place
    j = np.arange(columns)
    if isinstance(mod, fovea.SoftCap):
        return mod.cap * np.tanh(s / mod.cap)
    if isinstance(mod, fovea.Temperature):
        return s / mod.value
    if isinstance(mod, fovea.LearnedTemperature):
        return s / at(mod.temperature, "h", b, h, i, columns)
    if isinstance(mod, fovea.AlibiBias):
        return s - at(mod.slopes, "h", b, h, i, columns) * (position - j)
    if isinstance(mod, fovea.SymmetricAlibiBias):
        return s - at(mod.slopes, "h", b, h, i, columns) * np.abs(position - j)
    if isinstance(mod, fovea.DenseBias):
        return s + at(mod.bias, "bhqk", b, h, i, columns)
    if isinstance(mod, fovea.RelativeBias):
        table = at(mod.table, "hk", b, h, i, columns)
        buckets = [t5_bucket(position - int(key), table.size, mod.max_distance, mod.direction) for key in j]
        return s + table[buckets]
    if isinstance(mod, fovea.RelativeKeyBias):
        table = at(mod.table, "bhqk", b, h, i, columns)
        most = (table.size - 1) // 2
        return s + table[most + np.clip(position - j, -most, most)]
    if isinstance(mod, fovea.ForgetGate):
        return s + at(mod.query, "bhq", b, h, i, columns) - at(mod.key, "bhk", b, h, i, columns)
    center = at(mod.center, "bhq", b, h, i, columns)
    if isinstance(mod, fovea.LocalWindow):
        return np.where(np.abs(j - center) <= mod.reach, s, -np.inf)
    assert isinstance(mod, fovea.LocalGaussian)
    return s * np.exp(-((j - center) ** 2) / (2 * mod.deviation**2))


def t5_bucket(distance: int, buckets: int, most: int, direction: str) -> int:
    """The bucket of T5's `_relative_position_bucket`; distance is query - key."""
    first = 0
    if direction == "bidirectional":
        buckets //= 2
        first = buckets if distance < 0 else 0
        distance = abs(distance)
    else:
        distance = max(distance, 0)
    exact = buckets // 2
    if distance < exact:
        return first + distance
    far = exact + int(math.log(distance / exact) / math.log(most / exact) * (buckets - exact))
    return first + min(far, buckets - 1)


def visible(mask: Any, b: int, h: int, row: int, i: int, j: int) -> bool:
    """Whether the query in `row`, at position `i`, sees key j."""
    see = lambda part: visible(part, b, h, row, i, j)  # noqa: E731
    name = type(mask).__name__
    if mask is None or name == "Everything":
        return True
    if name == "And":
        return see(mask.a) and see(mask.b)
    if name == "Or":
        return see(mask.a) or see(mask.b)
    if name == "Not":
        return not see(mask.a)
    return bool(_VISIBLE[name](mask, b, h, row, i, j))


def _between(n: int, back: Optional[int], ahead: Optional[int]) -> bool:
    return (back is None or n >= -back) and (ahead is None or n <= ahead)


def _prefix(m: Any, b: int, i: int, j: int) -> bool:
    lengths = np.atleast_1d(m.lengths)
    return j <= i or j < lengths[b if lengths.size > 1 else 0]


def _document(m: Any, x: int) -> int:
    edges = list(m.boundaries)
    return next((d for d in range(len(edges) - 1) if edges[d] <= x < edges[d + 1]), -1)


def _block(m: Any, i: int, j: int) -> bool:
    table = np.asarray(m.visible)
    r, c = i // m.size, j // m.size
    return 0 <= r < table.shape[0] and 0 <= c < table.shape[1] and bool(table[r, c])


def _ancestor(m: Any, i: int, j: int) -> bool:
    if not (0 <= i < len(m.parents) and 0 <= j < len(m.parents)):
        return False
    while i != j and m.parents[i] != i:
        i = m.parents[i]
    return i == j


def _groups(m: Any, i: int, j: int) -> bool:
    n = len(m.groups)
    return 0 <= i < n and 0 <= j < n and m.groups[j] <= m.groups[i]


def _asked(m: Any, *site: int) -> bool:
    b, h, i, j = (np.full((1, 1, 1, 1), x) for x in site)
    return bool(np.asarray(m.visible(b, h, i, j)).reshape(-1)[0])


def _of_array(m: Any, b: int, h: int, row: int, j: int) -> bool:
    array = np.asarray(m.visible)
    array = array.reshape((1,) * (4 - array.ndim) + array.shape)
    return bool(array[tuple(0 if n == 1 else x for x, n in zip((b, h, row, j), array.shape))])


_VISIBLE: dict[str, Any] = {
    "Causal": lambda m, b, h, r, i, j: j <= i,
    "SlidingWindow": lambda m, b, h, r, i, j: _between(j - i, m.lookback, m.lookahead),
    "GlobalTokens": lambda m, b, h, r, i, j: i in m.positions or j in m.positions,
    "StreamingSinks": lambda m, b, h, r, i, j: j < m.count,
    "KeyLengths": lambda m, b, h, r, i, j: j < m.lengths[b],
    "Prefix": lambda m, b, h, r, i, j: _prefix(m, b, i, j),
    "Documents": lambda m, b, h, r, i, j: _document(m, i) == _document(m, j) >= 0,
    "Chunked": lambda m, b, h, r, i, j: i // m.size == j // m.size,
    "Strided": lambda m, b, h, r, i, j: (i - j) % m.stride == 0,
    "Dilated": lambda m, b, h, r, i, j: (j - i) % m.step == 0
    and _between((j - i) // m.step, m.lookback, m.lookahead),
    "BlockTable": lambda m, b, h, r, i, j: _block(m, i, j),
    "Tree": lambda m, b, h, r, i, j: _ancestor(m, i, j),
    "Groups": lambda m, b, h, r, i, j: _groups(m, i, j),
    "Predicate": lambda m, b, h, r, i, j: _asked(m, b, h, i, j),
    "ArrayMask": lambda m, b, h, r, i, j: _of_array(m, b, h, r, j),
}


def normalised(normalizer: Any, s: Any, head: int, count: int) -> tuple[Any, float]:
    """Weights of the scores that a query sees, and their log-sum-exp or its replacement. `count`: keys that the mask shows."""
    best = s.max()
    total = float(np.exp(s - best).sum())
    lse = float(best + math.log(total))
    if isinstance(normalizer, (fovea.Softmax,)):
        return np.exp(s - lse), lse
    if isinstance(normalizer, fovea.SoftmaxWithSink):
        sink = float(np.asarray(normalizer.sink, np.float64)[head])
        return np.exp(s - np.logaddexp(lse, sink)), lse
    if isinstance(normalizer, fovea.ScalableSoftmax):
        factor = float(np.asarray(normalizer.scale, np.float64)[head]) * math.log(count)
        return normalised(fovea.Softmax(), s * factor, head, count)
    if isinstance(normalizer, fovea.Sigmoid):
        return 1 / (1 + np.exp(-(s + normalizer.bias))), 0.0
    if isinstance(normalizer, (fovea.Sparsemax, fovea.Entmax)):
        return entmax(s, getattr(normalizer, "alpha", 2.0))
    if isinstance(normalizer, fovea.AdaptiveEntmax):
        return entmax(s, 1.01 + 0.99 / (1 + math.exp(-float(np.asarray(normalizer.sparsity, np.float64)[head]))))
    if isinstance(normalizer, fovea.HardArgmax):
        return (s == best) / (s == best).sum(), float(best)
    assert isinstance(normalizer, fovea.LinearChain)
    transitions = np.asarray(normalizer.transitions, np.float64)
    return chain(s, transitions[head] if transitions.ndim == 3 else transitions)


def entmax(s: Any, alpha: float) -> tuple[Any, float]:
    """The weights, by bisection of tau."""
    x = (alpha - 1) * s
    low, high = x.max() - 1.0, x.max()

    def weights(tau: float) -> Any:
        return np.maximum(x - tau, 0.0) ** (1 / (alpha - 1))

    for _ in range(200):
        tau = (low + high) / 2
        low, high = (tau, high) if weights(tau).sum() > 1 else (low, tau)
    return weights(low), float(low)


def chain(s: Any, transitions: Any) -> tuple[Any, float]:
    """p(z_j = 1) over all 2^n assignments, and ln Z."""
    states = list(itertools.product((0, 1), repeat=len(s)))
    potentials = np.array(
        [
            sum(s[j] * z for j, z in enumerate(state)) + sum(transitions[a, b] for a, b in zip(state, state[1:]))
            for state in states
        ]
    )
    lnz = float(np.logaddexp.reduce(potentials))
    return np.exp(potentials - lnz) @ np.array(states, np.float64), lnz
