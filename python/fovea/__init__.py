"""Fovea: attention for CPUs. Scores, mods, masks and normalisers combine freely; kernels are fused and have
gradients.

    import numpy as np, fovea

    q, k, v = (np.random.randn(1, 8, 512, 64).astype("f4") for _ in range(3))
    out = fovea.attention(q, k, v, mask=fovea.Causal() & fovea.SlidingWindow(127), mods=[fovea.SoftCap(50)])

`fovea.recurrence` has recurrences: linear attention, gated and delta rules, with a state instead of a growing cache.
`fovea.torch` has PyTorch's `scaled_dot_product_attention` and a context manager that makes a model use it. `fovea.nn`
has `MultiheadAttention`. Both are imported on first use.
"""

from __future__ import annotations

import importlib
from typing import Any

from . import (
    _arrays,
    _call,
    _errors,
    _libraries,
    _merge,
    _numpy,
    _plan,
    _recurrence,
    _scans,
    _threads,
    cache,
    masks,
    mods,
    normalizers,
    recurrences,
    rope,
    scores,
    stores,
)
from ._call import *
from ._errors import *
from ._merge import *
from ._plan import *
from ._recurrence import *
from ._scans import *
from ._threads import *
from .cache import *
from .masks import *
from .mods import *
from .normalizers import *
from .recurrences import *
from .rope import *
from .scores import *
from .stores import *

_arrays.serve(_libraries.OWNERS, _numpy.LIBRARY)

# Each module lists its public names; no name is listed twice.
__all__ = ["list_kernels"]
__all__ += _call.__all__
__all__ += _errors.__all__
__all__ += _merge.__all__
__all__ += _plan.__all__
__all__ += _recurrence.__all__
__all__ += _scans.__all__
__all__ += _threads.__all__
__all__ += cache.__all__
__all__ += masks.__all__
__all__ += mods.__all__
__all__ += normalizers.__all__
__all__ += recurrences.__all__
__all__ += rope.__all__
__all__ += scores.__all__
__all__ += stores.__all__


def list_kernels() -> list[tuple[str, str, bool]]:
    """(instruction set, algorithm on it, whether this CPU runs it), best first. `kernel=` and FOVEA_ISA take either;
    an instruction set means its best algorithm. `Plan.kernel` says which algorithm runs.

    >>> fovea.list_kernels()[-1]
    ('reference', 'reference', True)
    """
    from . import _core

    return _core.list_kernels()


def __dir__() -> list[str]:
    return sorted({*globals(), "__version__", "nn", "torch"} - {"Any", "annotations", "importlib"})


def __getattr__(name: str) -> Any:
    if name in ("torch", "nn"):
        return importlib.import_module(f".{name}", __name__)
    if name == "__version__":
        from importlib import metadata

        return metadata.version("fovea")
    raise AttributeError(f"module 'fovea' has no attribute {name!r}")
