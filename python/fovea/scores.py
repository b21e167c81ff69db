"""Scores: s(q, k), one number for a query and a key. `dim` stands for head_dim, `hidden` for a score's own width."""

from __future__ import annotations

from typing import Any, ClassVar

from ._errors import InvalidArgument
from ._properties import hidden_rows
from ._value import Value, shown

__all__ = [
    "Score",
    "Dot",
    "ScaledDot",
    "Bilinear",
    "Biaffine",
    "Additive",
    "Concat",
    "LowRankBilinear",
    "Location",
    "Coverage",
    "Cosine",
    "QkNorm",
]


class Score(Value):
    """The base class of scores, for `score=`."""

    _name: ClassVar[str] = ""

    def _text(self) -> str:
        return self._name

    def _arrays(self) -> dict[str, Any]:
        """The given arrays by the engine's names."""
        return {
            "score." + name: value for name, value in self._fields().items() if value is not None
        }

    def _hidden(self) -> int:
        """The score's own width, which one of its arguments has."""
        name = hidden_rows(self._text())
        return 0 if name is None else length(self._arrays().get(name), name)


class Dot(Score):
    """s = q·k (Luong et al. 2015, arXiv 1508.04025, "dot"); its default scale is 1.

    >>> fovea.attention(q, k, v, score=fovea.Dot()).shape
    (1, 2, 4, 8)
    """

    _name = "dot"


class ScaledDot(Score):
    """s = q·k / sqrt(dim) (Vaswani et al. 2017, arXiv 1706.03762, eq. 1), the default.

    >>> fovea.attention(q, k, v, score=fovea.ScaledDot()).shape
    (1, 2, 4, 8)
    """

    _name = "scaled-dot"


class Bilinear(Score):
    """s = kᵀ W q (Luong's "general", whose W_a is Wᵀ). Not symmetric in q and k.

    Args:
        W: [key_dim, query_dim], or [heads, key_dim, query_dim], f32 (f64 beside f64).

    >>> import numpy as np
    >>> fovea.attention(q, k, v, score=fovea.Bilinear(np.eye(8))).shape
    (1, 2, 4, 8)
    """

    W: Any
    _name = "bilinear"


class Biaffine(Score):
    """s = kᵀ(W q + b): a bilinear score, and a term of the key alone (Dozat and Manning 2017, arXiv 1611.01734, eq. 6).

    Args:
        W: [key_dim, query_dim], or [heads, key_dim, query_dim], f32 (f64 beside f64).
        b: [key_dim], or None.

    >>> import numpy as np
    >>> fovea.attention(q, k, v, score=fovea.Biaffine(np.eye(8), np.ones(8))).shape
    (1, 2, 4, 8)
    """

    W: Any
    b: Any = None
    _name = "biaffine"


class Additive(Score):
    """s = vᵀ tanh(W q + U k + b) (Bahdanau et al. 2015, arXiv 1409.0473, appendix A.1.2).

    If the queries (or keys) are already projected, W (or U) is None, and their dim is `hidden`.

    Args:
        W: [hidden, query_dim].
        U: [hidden, key_dim].
        v: [hidden].
        b: [hidden], or None.

    >>> import numpy as np
    >>> W, U, w = np.ones((5, 8), "f4"), np.ones((5, 8), "f4"), np.ones(5, "f4")
    >>> fovea.attention(q, k, v, score=fovea.Additive(W, U, w)).shape
    (1, 2, 4, 8)
    """

    W: Any
    U: Any
    v: Any
    b: Any = None
    _name = "additive"


class Concat(Score):
    """s = vᵀ tanh(W [q; k]) (Luong et al. 2015, "concat"): the additive score with W split in two.

    Args:
        W: [hidden, query_dim + key_dim].
        v: [hidden].

    >>> import numpy as np
    >>> fovea.attention(q, k, v, score=fovea.Concat(np.ones((5, 16)), np.ones(5))).shape
    (1, 2, 4, 8)
    """

    W: Any
    v: Any
    _name = "additive"

    def _split(self, query_dim: int) -> "Additive":
        W = self.W
        if isinstance(W, (list, tuple)):
            import numpy as np

            try:
                W = np.asarray(W)
            except ValueError:  # rows of different lengths
                W = None
        if len(getattr(W, "shape", ())) != 2:
            raise InvalidArgument("attention", "score.W", "[hidden, query_dim + key_dim]", shown(self.W))
        return Additive(W[:, :query_dim], W[:, query_dim:], self.v)


class LowRankBilinear(Score):
    """s = (U k)ᵀ(W q), a bilinear score of rank `hidden` (Kim et al. 2016, arXiv 1610.04325).

    Args:
        W: [hidden, query_dim].
        U: [hidden, key_dim].

    >>> import numpy as np
    >>> fovea.attention(q, k, v, score=fovea.LowRankBilinear(np.ones((3, 8)), np.ones((3, 8)))).shape
    (1, 2, 4, 8)
    """

    W: Any
    U: Any
    _name = "low-rank"


class Location(Score):
    """s_ij = (W q_i)_j: it reads no keys, so pass `key=None` (Luong et al. 2015, "location").

    Args:
        W: [at least key_len, query_dim].

    >>> import numpy as np
    >>> fovea.attention(q, None, v, score=fovea.Location(np.ones((4, 8)))).shape
    (1, 2, 4, 8)
    """

    W: Any
    _name = "location"


class Coverage(Score):
    """s_ij = vᵀ tanh(W q_i + U k_j + b + w c_ij), where c_ij is the sum of the weights that earlier queries of the
    call gave key j (See et al. 2017, arXiv 1704.04368, eq. 11). The queries of a head are computed one after the
    other.

    Args:
        W: [hidden, query_dim], or None as for Additive.
        U: [hidden, key_dim], or None.
        v: [hidden].
        w: [hidden].
        b: [hidden], or None.

    >>> import numpy as np
    >>> W, U, w = np.ones((5, 8)), np.ones((5, 8)), np.ones(5)
    >>> fovea.attention(q, k, v, score=fovea.Coverage(W, U, w, w)).shape
    (1, 2, 4, 8)
    """

    W: Any
    U: Any
    v: Any
    w: Any
    b: Any = None
    _name = "coverage"


class Cosine(Score):
    """s = cos(q, k) / max(temperature, 0.01), with one learned temperature for each head (Swin Transformer V2, Liu et
    al. 2022, arXiv 2111.09883, eq. 2).

    Args:
        temperature: [query heads].

    >>> import numpy as np
    >>> fovea.attention(q, k, v, score=fovea.Cosine(np.full(2, 0.1))).shape
    (1, 2, 4, 8)
    """

    temperature: Any
    _name = "cosine"


class QkNorm(Score):
    """The scaled dot product of queries and keys that were divided by their root mean square and multiplied by
    learned gains (Henry et al. 2020, arXiv 2010.04245; Qwen3, Gemma 3).

    Args:
        query_gain: [dim].
        key_gain: [dim].

    >>> import numpy as np
    >>> fovea.attention(q, k, v, score=fovea.QkNorm(np.ones(8), np.ones(8))).shape
    (1, 2, 4, 8)
    """

    query_gain: Any
    key_gain: Any
    _name = "qk-norm"


def length(array: Any, argument: str) -> int:
    """The length of the array's first axis."""
    try:
        return int(array.shape[0]) if hasattr(array, "shape") else len(array)
    except (TypeError, IndexError):
        raise InvalidArgument(
            "attention", argument, "an array of at least one axis", "None" if array is None else type(array).__name__
        ) from None
