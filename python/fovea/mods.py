"""Mods: element-wise changes of a score, after the scale and before the mask. Up to 8 mods are applied in the order
given. As `weight_mods` they change normalised weights instead: the weight is multiplied by the result of the mod at
1.

An array of a mod may have fewer axes than its description: a number serves all heads, and [query_len, key_len] all
batch entries and heads.
"""

from __future__ import annotations

from typing import Any, ClassVar, Sequence

from . import _core
from ._errors import InvalidArgument
from ._value import Value, count, integer, number, shown

__all__ = [
    "Mod",
    "SoftCap",
    "AlibiBias",
    "SymmetricAlibiBias",
    "alibi_slopes",
    "DenseBias",
    "RelativeBias",
    "RelativeKeyBias",
    "ForgetGate",
    "Temperature",
    "LearnedTemperature",
    "LocalWindow",
    "LocalGaussian",
]


class Mod(Value):
    """The base class of mods, for `mods=` and `weight_mods=`."""

    # From the engine's name of each array to the field that holds it. The engine knows its axes.
    _parameters: ClassVar[dict[str, str]] = {}

    def _text(self) -> str:
        raise NotImplementedError

    def _arrays(self) -> dict[str, Any]:
        return {argument: getattr(self, field) for argument, field in self._parameters.items()}


class SoftCap(Mod):
    """cap·tanh(score / cap): scores stay inside (-cap, cap) (Gemma 2, arXiv 2408.00118).

    >>> fovea.attention(q, k, v, mods=[fovea.SoftCap(50)]).shape
    (1, 2, 4, 8)
    """

    cap: float

    def _text(self) -> str:
        return f"softcap({number(self.cap, 'SoftCap.cap')})"


class AlibiBias(Mod):
    """score - slope·(query - key), positions counted in keys (Press et al. 2022, arXiv 2108.12409).

    Args:
        slopes: [heads], one number, or [batch or 1, heads or 1, 1, 1]; `alibi_slopes(heads)` gives the paper's. They may be learned.

    >>> fovea.attention(q, k, v, mods=[fovea.AlibiBias(fovea.alibi_slopes(2))], mask=fovea.Causal()).shape
    (1, 2, 4, 8)
    """

    slopes: Any
    _parameters = {"slope": "slopes"}

    def _text(self) -> str:
        return "alibi"


class SymmetricAlibiBias(Mod):
    """score - slope·|query - key|: ALiBi for an encoder, which sees both sides.

    Args:
        slopes: [heads], one number, or [batch or 1, heads or 1, 1, 1]; `alibi_slopes(heads)` gives the paper's. They may be learned.

    >>> fovea.attention(q, k, v, mods=[fovea.SymmetricAlibiBias(fovea.alibi_slopes(2))]).shape
    (1, 2, 4, 8)
    """

    slopes: Any
    _parameters = {"slope": "slopes"}

    def _text(self) -> str:
        return "symmetric-alibi"


_MOST_HEADS = 1 << 20


def alibi_slopes(num_heads: int) -> list[float]:
    """The paper's slopes: 2^(-8/n), 2^(-16/n), ... for a power of two, for other numbers of heads, slopes of the
    neighbouring powers of two, interleaved.

    >>> fovea.alibi_slopes(4)
    [0.25, 0.0625, 0.015625, 0.00390625]
    """
    heads = int(integer(num_heads, "alibi_slopes.num_heads"))
    if not 1 <= heads <= _MOST_HEADS:  # more would fill the memory
        raise InvalidArgument("alibi_slopes", "num_heads", f"a number in [1, {_MOST_HEADS}]", str(heads))
    return _core.alibi_slopes(heads)


class DenseBias(Mod):
    """score + bias; -inf hides.

    Args:
        bias: [batch or 1, heads or 1, query_len or 1, key_len or 1], leading axes may be missing.

    >>> import numpy as np
    >>> fovea.attention(q, k, v, mods=[fovea.DenseBias(np.zeros((4, 4)))]).shape
    (1, 2, 4, 8)
    """

    bias: Any
    _parameters = {"bias": "bias"}

    def _text(self) -> str:
        return "bias"


class RelativeBias(Mod):
    """score + table[bucket(query - key)]: each near distance has its own bucket, far ones share buckets
    logarithmically (T5, Raffel et al. 2020, arXiv 1910.10683).

    Args:
        table: [heads, buckets] or [buckets]. T5's own layout is the transpose.
        max_distance: from here on all distances share the last bucket.
        direction: "bidirectional" splits the buckets between the two directions; "causal" puts keys after the query
            into the bucket of distance 0.

    >>> import numpy as np
    >>> fovea.attention(q, k, v, mods=[fovea.RelativeBias(np.zeros((2, 32)))]).shape
    (1, 2, 4, 8)
    """

    table: Any
    max_distance: int = 128
    direction: str = "bidirectional"
    _parameters = {"table": "table"}

    def _text(self) -> str:
        if not isinstance(self.direction, str) or self.direction not in ("bidirectional", "causal"):
            raise InvalidArgument(
                "RelativeBias", "direction", '"bidirectional" or "causal"', shown(self.direction)
            )
        distance = count(self.max_distance, "RelativeBias.max_distance")
        return f"relative({_last_size(self.table, 'RelativeBias')},{distance},{self.direction})"


class RelativeKeyBias(Mod):
    """score + table[query][distance], where distance is query - key clipped to ±max_distance (Shaw et al. 2018, arXiv
    1803.02155). With a suitable table it is the bias of Transformer-XL (Dai et al. 2019, arXiv 1901.02860).

    Args:
        table: [batch or 1, heads or 1, query_len or 1, 2·max_distance + 1], leading axes may be missing.

    >>> import numpy as np
    >>> fovea.attention(q, k, v, mods=[fovea.RelativeKeyBias(np.zeros((4, 2 * 3 + 1)))]).shape
    (1, 2, 4, 8)
    """

    table: Any
    _parameters = {"table": "table"}

    def _text(self) -> str:
        return f"relative-key({(_last_size(self.table, 'RelativeKeyBias') - 1) // 2})"


class ForgetGate(Mod):
    """score + Σ_{l = key+1..query} log f_l: gates that depend on the data fade out distant keys (FoX, Lin et al.
    2025, arXiv 2503.02130). The mask must hide the keys ahead of a query, as `Causal()` does: for them the sum changes
    its sign, and the gates would favour them. This is not checked, because a query behind all keys needs no mask.

    Args:
        query: [batch or 1, heads or 1, query_len], the running sum of log f at each query.
        key: [batch or 1, heads or 1, key_len], the same at each key. `ForgetGate.of(log_f)` makes both.

    >>> import numpy as np
    >>> gate = fovea.ForgetGate.of(np.log(np.full((1, 2, 4), 0.9)))
    >>> fovea.attention(q, k, v, mods=[gate], mask=fovea.Causal()).shape
    (1, 2, 4, 8)
    """

    query: Any
    key: Any
    _parameters = {"query": "query", "key": "key"}

    def _text(self) -> str:
        return "forget"

    @classmethod
    def of(cls, log_f: Any) -> "ForgetGate":
        """Made from log f, [batch, heads, length], for as many queries as keys."""
        if not hasattr(log_f, "cumsum"):
            raise InvalidArgument("ForgetGate.of", "log_f", "an array [batch, heads, length]", shown(log_f))
        sums = log_f.cumsum(-1)
        return cls(sums, sums)


class Temperature(Mod):
    """score / value, value > 0. As value goes to 0, softmax becomes argmax.

    >>> fovea.attention(q, k, v, mods=[fovea.Temperature(0.5)]).shape
    (1, 2, 4, 8)
    """

    value: float

    def _text(self) -> str:
        return f"temperature({number(self.value, 'Temperature.value')})"


class LearnedTemperature(Mod):
    """score / temperature, learned.

    Args:
        temperature: [heads], or one number.

    >>> fovea.attention(q, k, v, mods=[fovea.LearnedTemperature([0.5, 2.0])]).shape
    (1, 2, 4, 8)
    """

    temperature: Any
    _parameters = {"temperature": "temperature"}

    def _text(self) -> str:
        return "temperature"


class LocalWindow(Mod):
    """Hides keys farther than `reach` from a center that each query chooses (Luong et al. 2015, arXiv 1508.04025,
    section 3.2, local-p). It must be the last mod, because it sets scores to -inf.

    Args:
        reach: in keys, at least 0.
        center: [batch, heads or 1, query_len], a position counted in keys.

    >>> import numpy as np
    >>> fovea.attention(q, k, None, mods=[fovea.LocalWindow(1, np.full((1, 1, 4), 2.5))])[0, 0, 0] > 0
    array([False, False,  True,  True])
    """

    reach: float
    center: Any
    _parameters = {"center": "center"}

    def _text(self) -> str:
        return f"local({number(self.reach, 'LocalWindow.reach')})"


class LocalGaussian(Mod):
    """A weight mod: weight · exp(-(key - center)² / 2·deviation²) (Luong et al. 2015, section 3.2, eq. 10; the
    paper's deviation is reach / 2).

    Args:
        deviation: in keys, above 0.
        center: as in LocalWindow. It has a gradient, for the network that predicts it.

    >>> import numpy as np
    >>> fovea.attention(q, k, v, weight_mods=[fovea.LocalGaussian(2, np.full((1, 1, 4), 2.5))]).shape
    (1, 2, 4, 8)
    """

    deviation: float
    center: Any
    _parameters = {"center": "center"}

    def _text(self) -> str:
        return f"gaussian({number(self.deviation, 'LocalGaussian.deviation')})"


def _last_size(table: Any, name: str) -> int:
    shape: Sequence[int] = getattr(table, "shape", ())
    if len(shape) > 0:
        return int(shape[-1])
    while isinstance(table, (list, tuple)) and table and isinstance(table[0], (list, tuple)):
        table = table[0]
    if isinstance(table, (list, tuple)) and table:
        return len(table)
    raise InvalidArgument(name, "table", "an array of at least one axis", shown(table))
