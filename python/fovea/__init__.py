"""Fovea: attention for CPUs. One algebra for every mechanism, fused kernels, gradients.

    import numpy as np, fovea

    q, k, v = (np.random.randn(1, 8, 512, 64).astype("f4") for _ in range(3))
    out = fovea.attention(q, k, v, mask=fovea.Causal() & fovea.SlidingWindow(127), mods=[fovea.SoftCap(50)])

`fovea.torch` has PyTorch's `scaled_dot_product_attention` and a context manager that puts it under a model;
`fovea.nn` has `MultiheadAttention`. Neither is imported before it is used.
"""

from __future__ import annotations

import importlib
from typing import Any

from ._call import Plan, attention, explain, get_num_threads, gradients, plan, set_num_threads
from ._errors import InvalidArgument
from ._merge import merge
from .masks import (
    ArrayMask,
    BigBird,
    BlockTable,
    Causal,
    Chunked,
    Dilated,
    Documents,
    Everything,
    GlobalTokens,
    Groups,
    KeyLengths,
    Mask,
    Predicate,
    Prefix,
    SlidingWindow,
    StreamingSinks,
    Strided,
    Tree,
)
from .mods import (
    AlibiBias,
    DenseBias,
    ForgetGate,
    LearnedTemperature,
    LocalGaussian,
    LocalWindow,
    Mod,
    RelativeBias,
    RelativeKeyBias,
    SoftCap,
    Temperature,
    alibi_slopes,
)
from .normalizers import (
    Entmax,
    GumbelSample,
    HardArgmax,
    HardSample,
    LinearChain,
    Normalizer,
    Sigmoid,
    Softmax,
    SoftmaxWithSink,
    Sparsemax,
)
from .rope import (
    DynamicNtkScaling,
    LinearScaling,
    Llama3Scaling,
    NtkScaling,
    Rope,
    RopeScaling,
    RopeTables,
    YarnScaling,
    rotate,
)
from .scores import (
    Additive,
    Bilinear,
    Concat,
    Cosine,
    Coverage,
    Dot,
    Location,
    LowRankBilinear,
    QkNorm,
    ScaledDot,
    Score,
)

__all__ = [
    "Additive",
    "AlibiBias",
    "ArrayMask",
    "BigBird",
    "Bilinear",
    "BlockTable",
    "Causal",
    "Chunked",
    "Concat",
    "Cosine",
    "Coverage",
    "DenseBias",
    "Dilated",
    "Documents",
    "Dot",
    "DynamicNtkScaling",
    "Entmax",
    "Everything",
    "ForgetGate",
    "GlobalTokens",
    "Groups",
    "GumbelSample",
    "HardArgmax",
    "HardSample",
    "InvalidArgument",
    "KeyLengths",
    "LearnedTemperature",
    "LinearChain",
    "LinearScaling",
    "Llama3Scaling",
    "LocalGaussian",
    "LocalWindow",
    "Location",
    "LowRankBilinear",
    "Mask",
    "Mod",
    "Normalizer",
    "NtkScaling",
    "Plan",
    "Predicate",
    "Prefix",
    "QkNorm",
    "RelativeBias",
    "RelativeKeyBias",
    "Rope",
    "RopeScaling",
    "RopeTables",
    "ScaledDot",
    "Score",
    "Sigmoid",
    "SlidingWindow",
    "SoftCap",
    "Softmax",
    "SoftmaxWithSink",
    "Sparsemax",
    "StreamingSinks",
    "Strided",
    "Temperature",
    "Tree",
    "YarnScaling",
    "alibi_slopes",
    "attention",
    "explain",
    "get_num_threads",
    "gradients",
    "list_kernels",
    "merge",
    "plan",
    "rotate",
    "set_num_threads",
]


def list_kernels() -> list[tuple[str, str, bool]]:
    """(what `kernel=` and FOVEA_ISA take, what `Plan.kernel` says, whether this CPU runs it), best first.

    >>> fovea.list_kernels()[-1]
    ('reference', 'reference', True)
    """
    from . import _core

    return _core.list_kernels()


def __getattr__(name: str) -> Any:
    if name in ("torch", "nn"):
        return importlib.import_module(f".{name}", __name__)
    if name == "__version__":
        from importlib import metadata

        return metadata.version("fovea")
    raise AttributeError(f"module 'fovea' has no attribute {name!r}")
