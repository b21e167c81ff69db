"""The parts of a recurrence (`fovea.recurrence`): feature maps, decays, writes, reads and normalisers."""

from __future__ import annotations

from typing import Any, ClassVar

from ._errors import InvalidArgument
from ._value import Value, real

__all__ = [
    "FeatureMap",
    "IdentityFeatures",
    "EluPlusOne",
    "Decay",
    "NoDecay",
    "ConstantDecay",
    "ScalarDecay",
    "KeyDecay",
    "Write",
    "AdditiveWrite",
    "DeltaWrite",
    "DiagonalPlusLowRankWrite",
    "Read",
    "AfterWrite",
    "BeforeDecay",
    "SelfWeight",
    "StateNormalizer",
    "NoNormalizer",
    "KeySum",
]


class _Part(Value):
    # The engine's name.
    _name: ClassVar[str] = ""

    def _arrays(self) -> dict[str, Any]:
        """The caller's arrays by the names of fields; those that are None are left out."""
        given = {name: getattr(self, name) for name in self._names}
        return {name: x for name, x in given.items() if x is not None}


class FeatureMap(_Part):
    """The base class of feature maps, for `feature_map=`: what becomes of queries and keys before all else."""


class IdentityFeatures(FeatureMap):
    """Queries and keys as they are, the default.

    >>> fovea.recurrence(q, k, v, feature_map=fovea.IdentityFeatures()).shape
    (1, 2, 4, 8)
    """

    _name = "identity"


class EluPlusOne(FeatureMap):
    """Each element x of queries and keys becomes elu(x) + 1: e^x below 0, x + 1 from 0 on (Katharopoulos et al. 2020,
    arXiv 2006.16236). The scale multiplies the features.

    >>> fovea.recurrence(q, k, v, feature_map=fovea.EluPlusOne(), normalizer=fovea.KeySum()).shape
    (1, 2, 4, 8)
    """

    _name = "elu+1"


class Decay(_Part):
    """The base class of decays, for `decay=`. Numbers are g ≤ 0, the logarithms of decays: before each write the
    state is multiplied by e^g. -infinity forgets everything."""


class NoDecay(Decay):
    """g = 0: nothing is forgotten. The default.

    >>> fovea.recurrence(q, k, v, decay=fovea.NoDecay()).shape
    (1, 2, 4, 8)
    """

    _name = "none"


class ConstantDecay(Decay):
    """One decay for each head (RetNet, Sun et al. 2023, arXiv 2307.08621; Lightning Attention, arXiv 2401.04658).

    Args:
        log_decay: [heads], f32 (f64 for f64) or what converts to it.

    >>> import numpy as np
    >>> retnet = fovea.ConstantDecay(np.log(1 - 2.0 ** (-5 - np.arange(2))))
    >>> fovea.recurrence(q, k, v, decay=retnet).shape
    (1, 2, 4, 8)
    """

    log_decay: Any

    _name = "constant"


class ScalarDecay(Decay):
    """One decay for each token and head (Mamba-2, Dao and Gu 2024, arXiv 2405.21060; Gated DeltaNet, arXiv 2412.06464).

    Args:
        log_decay: [batch, heads, len], f32 (f64 for f64) or what converts to it.

    >>> import numpy as np
    >>> fovea.recurrence(q, k, v, decay=fovea.ScalarDecay(np.full((1, 2, 4), -0.1))).shape
    (1, 2, 4, 8)
    """

    log_decay: Any

    _name = "scalar"


class KeyDecay(Decay):
    """One decay for each token, head and row of the state (GLA, Yang et al. 2023, arXiv 2312.06635; Kimi Delta
    Attention, arXiv 2510.26692; RWKV-7, arXiv 2503.14456).

    Args:
        log_decay: [batch, heads, len, key_dim], f32 (f64 for f64) or what converts to it.

    >>> import numpy as np
    >>> fovea.recurrence(q, k, v, decay=fovea.KeyDecay(np.full((1, 2, 4, 8), -0.1))).shape
    (1, 2, 4, 8)
    """

    log_decay: Any

    _name = "key"


class Write(_Part):
    """The base class of writes, for `write=`. D is the decayed state."""


class AdditiveWrite(Write):
    """S = D + k vᵀ, the default.

    >>> fovea.recurrence(q, k, v, write=fovea.AdditiveWrite()).shape
    (1, 2, 4, 8)
    """

    _name = "additive"


class DeltaWrite(Write):
    """S = D + k (y - Dᵀr)ᵀ: what the state holds under r is replaced by y, with r = beta·erase and y = beta·value
    (DeltaNet, Yang et al. 2024, arXiv 2406.06484). The state stays bounded while beta·|k|² ≤ 2. Nothing is clipped
    and keys are not normalised.

    Args:
        beta: [batch, heads, len], f32 (f64 for f64) or what converts to it; None: 1.
        erase: [batch, heads, len, key_dim], in the dtype of the keys; None: the keys. At least one of both is given.

    >>> import numpy as np
    >>> fovea.recurrence(q, k, v, write=fovea.DeltaWrite(beta=np.full((1, 2, 4), 0.1))).shape
    (1, 2, 4, 8)
    """

    beta: Any = None
    erase: Any = None

    _name = "delta"

    def __post_init__(self) -> None:
        if self.beta is None and self.erase is None:
            raise InvalidArgument("DeltaWrite", "beta", "an array, or one for erase", "neither")


class DiagonalPlusLowRankWrite(Write):
    """S = D + b pᵀ + k vᵀ with p = S₋ᵀa, where S₋ is the state before its decay (RWKV-7, Peng et al. 2025,
    arXiv 2503.14456).

    Args:
        a, b: [batch, heads, len, key_dim], in the dtype of the keys.

    >>> fovea.recurrence(q, k, v, write=fovea.DiagonalPlusLowRankWrite(-0.1 * k, 0.1 * k)).shape
    (1, 2, 4, 8)
    """

    a: Any
    b: Any

    _name = "diagonal-plus-low-rank"


class Read(_Part):
    """The base class of reads, for `read=`."""


class AfterWrite(Read):
    """o = scale · Sᵀq, the default: a token reads what it has written.

    >>> fovea.recurrence(q, k, v, read=fovea.AfterWrite()).shape
    (1, 2, 4, 8)
    """

    _name = "after-write"


class BeforeDecay(Read):
    """o = scale · (S₋ + diag(u) k yᵀ)ᵀq: a token reads the state before its own decay and write. Of its own pair it
    reads k and y with the bonus u (RWKV-6, Peng et al. 2024, arXiv 2404.05892). y is the value, or the target of
    `DeltaWrite`.

    Args:
        bonus: u, [heads, key_dim], f32 (f64 for f64) or what converts to it.

    >>> import numpy as np
    >>> fovea.recurrence(q, k, v, read=fovea.BeforeDecay(np.ones((2, 8)))).shape
    (1, 2, 4, 8)
    """

    bonus: Any

    _name = "before-decay"


class SelfWeight(Read):
    """o = scale · (D + w k yᵀ)ᵀq: a token's own pair counts w (Mamba-3). y is the value, or the target of
    `DeltaWrite`.

    Args:
        self_weight: w, [batch, heads, len], f32 (f64 for f64) or what converts to it.

    >>> import numpy as np
    >>> fovea.recurrence(q, k, v, read=fovea.SelfWeight(np.ones((1, 2, 4)))).shape
    (1, 2, 4, 8)
    """

    self_weight: Any

    _name = "self-weight"


class StateNormalizer(_Part):
    """The base class of a recurrence's normalisers, for `normalizer=`."""


class NoNormalizer(StateNormalizer):
    """The output is what is read, the default.

    >>> fovea.recurrence(q, k, v, normalizer=fovea.NoNormalizer()).shape
    (1, 2, 4, 8)
    """

    _name = "none"


class KeySum(StateNormalizer):
    """The output is divided by n + epsilon, where n is what the query reads of the same recurrence with values of 1
    (Katharopoulos et al. 2020, arXiv 2006.16236). The state has one more column, the last, which gives n. Features
    should be positive, as those of `EluPlusOne` are: else n may come near -epsilon.

    Args:
        epsilon: at least 0.

    >>> fovea.recurrence(q, k, v, feature_map=fovea.EluPlusOne(), normalizer=fovea.KeySum(1e-10)).shape
    (1, 2, 4, 8)
    """

    epsilon: float = 1e-6

    _name = "sum"

    def __post_init__(self) -> None:
        real(self.epsilon, "KeySum.epsilon")

    def _arrays(self) -> dict[str, Any]:
        return {}
