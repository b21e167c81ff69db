"""Normalisers: functions from a row's scores to its weights."""

from __future__ import annotations

from typing import Any

from ._value import Value, number

__all__ = [
    "Normalizer",
    "Softmax",
    "SoftmaxWithSink",
    "ScalableSoftmax",
    "Sigmoid",
    "Sparsemax",
    "Entmax",
    "AdaptiveEntmax",
    "HardArgmax",
    "HardSample",
    "GumbelSample",
    "LinearChain",
]


class Normalizer(Value):
    """The base class of normalisers, for `normalizer=`."""

    def _text(self) -> str:
        raise NotImplementedError

    def _arrays(self) -> dict[str, Any]:
        return {}


class Softmax(Normalizer):
    """P = exp(s) / Σ exp(s), the default.

    >>> fovea.attention(q, k, v, normalizer=fovea.Softmax()).shape
    (1, 2, 4, 8)
    """

    def _text(self) -> str:
        return "softmax"


class SoftmaxWithSink(Normalizer):
    """P = exp(s) / (exp(sink) + Σ exp(s)): the sink takes weight that goes to no key (gpt-oss; Xiao et al. 2023,
    arXiv 2309.17453). The log-sum-exp does not contain the sink.

    Args:
        sink: [heads].

    >>> fovea.attention(q, k, v, normalizer=fovea.SoftmaxWithSink([0.0, 1.0])).shape
    (1, 2, 4, 8)
    """

    sink: Any

    def _text(self) -> str:
        return "sink"

    def _arrays(self) -> dict[str, Any]:
        return {"normalizer.sink": self.sink}


class ScalableSoftmax(Normalizer):
    """P = softmax(c ln(n) s), where n is the number of keys that the query sees. A plain softmax flattens as rows
    grow longer; this one does not (Nakanishi 2025, arXiv 2501.19399). The log-sum-exp is that of c ln(n) s.

    Args:
        scale: c, [heads].

    >>> fovea.attention(q, k, v, normalizer=fovea.ScalableSoftmax([0.4, 0.5])).shape
    (1, 2, 4, 8)
    """

    scale: Any

    def _text(self) -> str:
        return "scalable"

    def _arrays(self) -> dict[str, Any]:
        return {"normalizer.scale": self.scale}


class Sigmoid(Normalizer):
    """P = 1 / (1 + exp(-(s + bias))): rows do not sum to 1. With a bias near -ln key_len, training begins with
    weights like softmax's (Ramapuram et al. 2024, arXiv 2409.04431).

    >>> import numpy as np
    >>> fovea.attention(q, k, v, normalizer=fovea.Sigmoid(-np.log(4))).shape
    (1, 2, 4, 8)
    """

    bias: float = 0.0

    def _text(self) -> str:
        return f"sigmoid({number(self.bias, 'Sigmoid.bias')})"


class Sparsemax(Normalizer):
    """The Euclidean projection of the scores onto the simplex: scores far below the best get a weight of
    exactly 0 (Martins and Astudillo 2016, arXiv 1602.02068).

    >>> fovea.attention(q, k, v, normalizer=fovea.Sparsemax()).shape
    (1, 2, 4, 8)
    """

    def _text(self) -> str:
        return "sparsemax"


class Entmax(Normalizer):
    """P = [(alpha - 1) s - tau]₊^(1 / (alpha - 1)) (Peters et al. 2019, arXiv 1905.05702): alpha in (1, 2]. Near 1 it
    approaches softmax; at 2 it is sparsemax.

    >>> fovea.attention(q, k, v, normalizer=fovea.Entmax(1.5)).shape
    (1, 2, 4, 8)
    """

    alpha: float = 1.5

    def _text(self) -> str:
        return f"entmax({number(self.alpha, 'Entmax.alpha')})"


class AdaptiveEntmax(Normalizer):
    """Entmax whose alpha each head learns: alpha = 1.01 + 0.99 sigmoid(sparsity) (Correia et al. 2019, arXiv
    1909.00015).

    Args:
        sparsity: [heads], finite.

    >>> fovea.attention(q, k, v, normalizer=fovea.AdaptiveEntmax([-1.0, 1.0])).shape
    (1, 2, 4, 8)
    """

    sparsity: Any

    def _text(self) -> str:
        return "adaptive-entmax"

    def _arrays(self) -> dict[str, Any]:
        return {"normalizer.sparsity": self.sparsity}


class HardArgmax(Normalizer):
    """All weight on the key with the largest score, in equal shares if there are several. Scores get no gradient.

    >>> import numpy as np
    >>> np.unique(fovea.attention(q, k, None, normalizer=fovea.HardArgmax()))
    array([0., 1.], dtype=float32)
    """

    def _text(self) -> str:
        return "argmax"


class HardSample(Normalizer):
    """All weight on one key, drawn from the softmax by `seed`. With `gradients(..., advantage=)` scores get the score
    function's gradient, `advantage` · d ln P(key) (Williams 1992; Xu et al. 2015, arXiv 1502.03044, eq. 11).

    >>> import numpy as np
    >>> np.unique(fovea.attention(q, k, None, normalizer=fovea.HardSample(), seed=1))
    array([0., 1.], dtype=float32)
    """

    def _text(self) -> str:
        return "sample"


class GumbelSample(Normalizer):
    """All weight on one key, drawn from the softmax by `seed`. Scores get the gradient of softmax((s + noise) /
    temperature) (straight-through Gumbel-softmax; Jang et al. 2016, arXiv 1611.01144).

    >>> fovea.attention(q, k, v, normalizer=fovea.GumbelSample(0.5), seed=1).shape
    (1, 2, 4, 8)
    """

    temperature: float = 1.0

    def _text(self) -> str:
        return f"gumbel({number(self.temperature, 'GumbelSample.temperature')})"


class LinearChain(Normalizer):
    """P_ij = p(z_j = 1) of a chain of binary variables over the keys (structured attention; Kim et al. 2017,
    arXiv 1702.00887, section 3.1). Rows do not sum to 1.

    Args:
        transitions: potentials of neighbours (z_j, z_j+1), [2, 2] or [heads, 2, 2], finite.

    >>> fovea.attention(q, k, v, normalizer=fovea.LinearChain([[0.5, 0.0], [0.0, 0.5]])).shape
    (1, 2, 4, 8)
    """

    transitions: Any

    def _text(self) -> str:
        return "chain"

    def _arrays(self) -> dict[str, Any]:
        return {"normalizer.transitions": self.transitions}
