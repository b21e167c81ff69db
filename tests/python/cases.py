"""Values of the algebra by name, made for given sizes, for the grids of the tests."""

from __future__ import annotations

import dataclasses
from typing import Any, Callable

import numpy as np

import fovea

DTYPES = ["f64", "f32", "f16", "bf16"]


def dtype(name: str) -> Any:
    if name == "bf16":
        import pytest

        return np.dtype(pytest.importorskip("ml_dtypes").bfloat16)
    return np.dtype({"f64": "f8", "f32": "f4", "f16": "f2"}[name])


@dataclasses.dataclass(frozen=True)
class Sizes:
    batch: int = 2
    heads: int = 4
    kv_heads: int = 2
    rows: int = 5
    columns: int = 7
    dim: int = 6
    value_dim: int = 3


def arrays(rng: Any, s: Sizes, kind: Any, key_dim: int = 0) -> tuple[Any, Any, Any]:
    shapes = (
        (s.batch, s.heads, s.rows, s.dim),
        (s.batch, s.kv_heads, s.columns, key_dim or s.dim),
        (s.batch, s.kv_heads, s.columns, s.value_dim),
    )
    q, k, v = (rng.standard_normal(shape).astype(kind) for shape in shapes)
    return q, k, v


Make = Callable[[Any, Sizes], Any]


def _n(rng: Any, *shape: int) -> Any:
    return rng.standard_normal(shape)


HIDDEN = 6  # a score without W (or U) has queries (or keys) of this width, which is Sizes.dim

SCORES: dict[str, Make] = {
    "scaled-dot": lambda r, s: fovea.ScaledDot(),
    "dot": lambda r, s: fovea.Dot(),
    "bilinear": lambda r, s: fovea.Bilinear(_n(r, s.dim, s.dim)),
    "biaffine": lambda r, s: fovea.Biaffine(_n(r, s.heads, s.dim, s.dim), _n(r, s.dim)),
    "bilinear a head": lambda r, s: fovea.Bilinear(_n(r, s.heads, s.dim, s.dim)),
    "additive": lambda r, s: fovea.Additive(_n(r, 5, s.dim), _n(r, 5, s.dim), _n(r, 5)),
    "additive with b": lambda r, s: fovea.Additive(_n(r, 5, s.dim), _n(r, 5, s.dim), _n(r, 5), _n(r, 5)),
    "additive without W": lambda r, s: fovea.Additive(None, _n(r, HIDDEN, s.dim), _n(r, HIDDEN)),
    "additive without U": lambda r, s: fovea.Additive(_n(r, HIDDEN, s.dim), None, _n(r, HIDDEN)),
    "concat": lambda r, s: fovea.Concat(_n(r, 5, 2 * s.dim), _n(r, 5)),
    "low-rank": lambda r, s: fovea.LowRankBilinear(_n(r, 4, s.dim), _n(r, 4, s.dim)),
    "cosine": lambda r, s: fovea.Cosine(0.5 + r.random(s.heads)),
    "qk-norm": lambda r, s: fovea.QkNorm(_n(r, s.dim), _n(r, s.dim)),
    "location": lambda r, s: fovea.Location(_n(r, s.columns + 2, s.dim)),
    "coverage": lambda r, s: fovea.Coverage(_n(r, 5, s.dim), _n(r, 5, s.dim), _n(r, 5), _n(r, 5)),
    "coverage with b": lambda r, s: fovea.Coverage(
        _n(r, 5, s.dim), _n(r, 5, s.dim), _n(r, 5), _n(r, 5), b=_n(r, 5)
    ),
}

MODS: dict[str, Make] = {
    "softcap": lambda r, s: fovea.SoftCap(1.5),
    "temperature": lambda r, s: fovea.Temperature(0.7),
    "learned temperature": lambda r, s: fovea.LearnedTemperature(0.5 + r.random(s.heads)),
    "one learned temperature": lambda r, s: fovea.LearnedTemperature(0.8),
    "alibi": lambda r, s: fovea.AlibiBias(_n(r, s.heads)),
    "symmetric alibi": lambda r, s: fovea.SymmetricAlibiBias(_n(r, s.heads)),
    "one alibi slope": lambda r, s: fovea.AlibiBias(0.25),
    "alibi of a list": lambda r, s: fovea.AlibiBias(fovea.alibi_slopes(s.heads)),
    "bias of 4 axes": lambda r, s: fovea.DenseBias(_n(r, s.batch, s.heads, s.rows, s.columns)),
    "bias of a batch entry": lambda r, s: fovea.DenseBias(_n(r, s.batch, 1, s.rows, s.columns)),
    "bias of a head": lambda r, s: fovea.DenseBias(_n(r, s.heads, s.rows, s.columns)),
    "bias of 2 axes": lambda r, s: fovea.DenseBias(_n(r, s.rows, s.columns)),
    "bias a key": lambda r, s: fovea.DenseBias(_n(r, s.columns)),
    "bias a query": lambda r, s: fovea.DenseBias(_n(r, s.rows, 1)),
    "relative": lambda r, s: fovea.RelativeBias(_n(r, s.heads, 8), 16),
    "relative causal": lambda r, s: fovea.RelativeBias(_n(r, s.heads, 8), 16, "causal"),
    "relative for all heads": lambda r, s: fovea.RelativeBias(_n(r, 32)),
    "relative key": lambda r, s: fovea.RelativeKeyBias(_n(r, s.batch, s.heads, s.rows, 7)),
    "relative key for all": lambda r, s: fovea.RelativeKeyBias(_n(r, 7)),
    "local window": lambda r, s: fovea.LocalWindow(2.5, s.columns * r.random((s.batch, s.heads, s.rows))),
}

WEIGHT_MODS: dict[str, Make] = {
    "gaussian": lambda r, s: fovea.LocalGaussian(2.0, s.columns * r.random((s.batch, s.heads, s.rows))),
    "gaussian for all heads": lambda r, s: fovea.LocalGaussian(1.5, s.columns * r.random((s.batch, 1, s.rows))),
    "soft cap of weights": lambda r, s: fovea.SoftCap(0.5),
    "temperature of weights": lambda r, s: fovea.LearnedTemperature(0.5 + r.random(s.heads)),
}

NORMALIZERS: dict[str, Make] = {
    "softmax": lambda r, s: fovea.Softmax(),
    "sink": lambda r, s: fovea.SoftmaxWithSink(_n(r, s.heads)),
    "scalable": lambda r, s: fovea.ScalableSoftmax(_n(r, s.heads)),
    "sigmoid": lambda r, s: fovea.Sigmoid(),
    "sigmoid with bias": lambda r, s: fovea.Sigmoid(-1.5),
    "sparsemax": lambda r, s: fovea.Sparsemax(),
    "entmax": lambda r, s: fovea.Entmax(),
    "entmax 1.25": lambda r, s: fovea.Entmax(1.25),
    "adaptive-entmax": lambda r, s: fovea.AdaptiveEntmax(_n(r, s.heads)),
    "argmax": lambda r, s: fovea.HardArgmax(),
    "chain": lambda r, s: fovea.LinearChain(_n(r, 2, 2)),
    "chain a head": lambda r, s: fovea.LinearChain(_n(r, s.heads, 2, 2)),
}


def _block_table(r: Any, s: Sizes) -> Any:
    return fovea.BlockTable(2, r.random((s.columns // 2 + 1, s.columns // 2 + 1)) < 0.7)


MASKS: dict[str, Make] = {
    "none": lambda r, s: None,
    "everything": lambda r, s: fovea.Everything(),
    "causal": lambda r, s: fovea.Causal(),
    "window": lambda r, s: fovea.SlidingWindow(2, 1),
    "window back": lambda r, s: fovea.SlidingWindow(2),
    "window ahead": lambda r, s: fovea.SlidingWindow(None, 1),
    "global": lambda r, s: fovea.SlidingWindow(1, 1) | fovea.GlobalTokens([0, 3]),
    "sinks": lambda r, s: fovea.StreamingSinks(2) | fovea.SlidingWindow(1, 0),
    "lengths": lambda r, s: fovea.KeyLengths([s.columns - 2 * b for b in range(s.batch)]),
    "lengths of 0": lambda r, s: fovea.KeyLengths([0] * s.batch),
    "prefix": lambda r, s: fovea.Prefix(3),
    "prefixes": lambda r, s: fovea.Prefix([3 + b for b in range(s.batch)]),
    "documents": lambda r, s: fovea.Documents([0, 2, 3, s.columns]),
    "chunked": lambda r, s: fovea.Chunked(3),
    "strided": lambda r, s: fovea.Strided(3),
    "dilated": lambda r, s: fovea.Dilated(2, 1, 2),
    "dilated back": lambda r, s: fovea.Dilated(None, 0, 3),
    "blocks": _block_table,
    "tree": lambda r, s: fovea.Tree([0] + [int(r.integers(0, n + 1)) for n in range(1, s.columns)]),
    "groups": lambda r, s: fovea.Groups(sorted(int(x) for x in r.integers(0, 3, s.columns))),
    "predicate": lambda r, s: fovea.Predicate(lambda b, h, i, j: (i * 3 + j + b) % 4 != 0),
    "array": lambda r, s: fovea.ArrayMask(r.random((s.batch, 1, s.rows, s.columns)) < 0.6),
    "array of 2 axes": lambda r, s: fovea.ArrayMask(r.random((s.rows, s.columns)) < 0.6),
    "all of them": lambda r, s: (fovea.Causal() & ~fovea.Strided(3) | fovea.Prefix(2)) & ~fovea.Documents([0, 1]),
    "lengths within": lambda r, s: fovea.Causal() & fovea.KeyLengths([s.columns - b for b in range(s.batch)]),
    "array within": lambda r, s: fovea.ArrayMask(r.random((s.rows, s.columns)) < 0.6) & fovea.SlidingWindow(3, 3),
}
