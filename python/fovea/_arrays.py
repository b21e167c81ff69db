"""What differs between NumPy, PyTorch and other libraries of arrays."""

from __future__ import annotations

import sys
from typing import Any

from ._errors import InvalidArgument

_NAMES = {"float32": "f32", "float64": "f64", "bfloat16": "bf16", "float16": "f16"}
_OF_NAME = {short: long for long, short in _NAMES.items()}


def dtype_name(array: Any, argument: str, function: str = "attention") -> str:
    """ "f32", "f64", "bf16" or "f16"."""
    try:
        name = str(array.dtype).rsplit(".", 1)[-1]
    except Exception:  # of an object that only looks like an array, anything
        name = ""
    if name not in _NAMES or not hasattr(array, "shape"):
        raise InvalidArgument(
            function,
            argument,
            "an array of f32, f64, bf16 or f16 (NumPy, or with __dlpack__)",
            described(array),
        )
    return _NAMES[name]


def described(x: Any) -> str:
    try:
        return f"{x.dtype} {list(x.shape)}"
    except Exception:
        return type(x).__name__


def compute_dtype(name: str) -> str:
    """In what a plan of this dtype adds up, and has its parameters."""
    return "f64" if name == "f64" else "f32"


class NumPy:
    """Also the fallback for what knows __dlpack__ alone."""

    @staticmethod
    def empty(shape: tuple[int, ...], dtype: str, like: Any) -> Any:
        import numpy as np

        if dtype == "bf16":
            return np.empty(shape, like.dtype)  # ml_dtypes' own
        return np.empty(shape, _OF_NAME[dtype])

    @staticmethod
    def output(shape: tuple[int, ...], dtype: str, query: Any, row_major: bool) -> Any:
        return NumPy.empty(shape, dtype, query)

    @staticmethod
    def like(x: Any) -> Any:
        """Uninitialised, row by row."""
        import numpy as np

        return np.empty(x.shape, x.dtype)

    @staticmethod
    def operand(x: Any) -> Any:
        """With a contiguous innermost axis: a copy where it has none."""
        import numpy as np

        if isinstance(x, np.ndarray) and x.ndim and x.shape[-1] > 1 and x.strides[-1] != x.itemsize:
            return np.ascontiguousarray(x)
        return x

    @staticmethod
    def parameter(x: Any, dtype: str, argument: str, function: str = "attention") -> Any:
        """In the dtype that the plan adds up in: numbers and lists too."""
        import numpy as np

        if isinstance(x, np.ndarray) and x.dtype == _OF_NAME[dtype]:
            return NumPy.operand(x)
        try:
            # What NumPy would make numbers of: nothing (NaN), texts, dates, half of a complex number.
            made = x if isinstance(x, np.ndarray) else np.asarray(x)
            if x is None or made.dtype.kind in "cSUmM":
                raise TypeError
            made = made.astype(_OF_NAME[dtype])
        except Exception:  # whatever an object's __array__ or __float__ raises
            raise InvalidArgument(function, argument, "an array of numbers", described(x)) from None
        return NumPy.operand(made)

    @staticmethod
    def joined(a: Any, b: Any) -> Any:
        """Side by side."""
        import numpy as np

        return np.concatenate([a, b], axis=-1)

    @staticmethod
    def result(x: Any, like: Any) -> Any:
        """As an array of the library that `like` comes from."""
        import numpy as np

        if isinstance(like, np.ndarray):
            return x
        namespace = getattr(like, "__array_namespace__", None)
        return namespace().from_dlpack(x) if namespace else x


    @staticmethod
    def handed(arrays: dict[str, Any]) -> dict[str, Any]:
        return arrays


class Torch:
    @staticmethod
    def empty(shape: tuple[int, ...], dtype: str, like: Any) -> Any:
        import torch

        return torch.empty(shape, dtype=getattr(torch, _OF_NAME[dtype]))

    @staticmethod
    def output(shape: tuple[int, ...], dtype: str, query: Any, row_major: bool) -> Any:
        """For the attention of a query that `operand` gave."""
        if row_major or query.is_contiguous():
            return Torch.empty(shape, dtype, query)
        return Torch.following(query, shape[-1])

    @staticmethod
    def like(x: Any) -> Any:
        """Uninitialised, with the axes in the order that they have in x's memory, the innermost one contiguous."""
        import torch

        if x.ndim and x.shape[-1] > 1 and x.stride(-1) != 1:
            return x.new_empty(x.shape)
        return torch.empty_like(x)

    @staticmethod
    def following(query: Any, value_dim: int) -> Any:
        """Uninitialised, [..., value_dim], otherwise like the query: a user's `y.transpose(1, 2).view(...)` of a
        transposed query then needs no copy, nor does the view fail."""
        import torch

        if value_dim == query.shape[-1]:
            return Torch.like(query)
        if query.shape[-1] > 1 and query.stride(-1) != 1:
            return query.new_empty((*query.shape[:-1], value_dim))
        strides = torch.empty_like(query[..., :1]).stride()
        wider = (*(stride * value_dim for stride in strides[:-1]), 1)
        return query.new_empty_strided((*query.shape[:-1], value_dim), wider)

    @staticmethod
    def handed(arrays: dict[str, Any]) -> dict[str, Any]:
        """To the engine. What `__dlpack__` gives in the end, without what it asks before: a third of the time of
        a small call."""
        from torch.utils.dlpack import to_dlpack  # type: ignore[attr-defined, unused-ignore]

        return {name: to_dlpack(x) for name, x in arrays.items()}

    @staticmethod
    def operand(x: Any) -> Any:
        import torch

        if not isinstance(x, torch.Tensor):
            return x
        x = x.detach().resolve_neg()  # which DLPack knows nothing of
        return x.contiguous() if x.ndim and x.shape[-1] > 1 and x.stride(-1) != 1 else x

    @staticmethod
    def parameter(x: Any, dtype: str, argument: str, function: str = "attention") -> Any:
        """Keeps the way back to what it was made of."""
        import torch

        try:
            return torch.as_tensor(x, dtype=getattr(torch, _OF_NAME[dtype]))
        except (TypeError, ValueError, RuntimeError):
            raise InvalidArgument(function, argument, "an array of numbers", described(x)) from None

    @staticmethod
    def joined(a: Any, b: Any) -> Any:
        import torch

        return torch.cat([a, b], -1)

    @staticmethod
    def result(x: Any, like: Any) -> Any:
        return x


def is_torch(x: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(x, torch.Tensor)


def wants_gradient(x: Any) -> bool:
    """Would PyTorch follow what is made of it?"""
    if not is_torch(x) or not x.requires_grad:
        return False
    return bool(sys.modules["torch"].is_grad_enabled())


def library_of(x: Any) -> Any:
    return Torch if is_torch(x) else NumPy
