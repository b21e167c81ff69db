"""Tensors of PyTorch, as the calls on them need them made and read."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.dlpack import to_dlpack  # type: ignore[attr-defined, unused-ignore]

from .._arrays import LONG_NAMES, Library, described
from .._errors import InvalidArgument
from ._kinds import own_mask


class Tensors(Library):
    arrays = (torch.Tensor,)
    noun = "a tensor of PyTorch"
    conversion = "torch.from_numpy makes the query a tensor"
    follows = True
    deferred = True

    def empty(self, shape: tuple[int, ...], dtype: str, like: Any) -> Any:
        return torch.empty(shape, dtype=getattr(torch, LONG_NAMES[dtype]))

    def output(self, shape: tuple[int, ...], dtype: str, query: Any, row_major: bool) -> Any:
        if row_major or query.is_contiguous():
            return self.empty(shape, dtype, query)
        return self.following(query, shape[-1])

    def like(self, x: Any) -> Any:
        """With the axes in the order that they have in x's memory, the innermost one contiguous."""
        if x.ndim and x.shape[-1] > 1 and x.stride(-1) != 1:
            return x.new_empty(x.shape)
        return torch.empty_like(x)

    def following(self, query: Any, value_dim: int) -> Any:
        """Uninitialised, [..., value_dim], otherwise like the query: a user's `y.transpose(1, 2).view(...)` of a
        transposed query then needs no copy, nor does the view fail."""
        if value_dim == query.shape[-1]:
            return self.like(query)
        if query.shape[-1] > 1 and query.stride(-1) != 1:
            return query.new_empty((*query.shape[:-1], value_dim))
        strides = torch.empty_like(query[..., :1]).stride()
        wider = (*(stride * value_dim for stride in strides[:-1]), 1)
        return query.new_empty_strided((*query.shape[:-1], value_dim), wider)

    def handed(self, arrays: dict[str, Any]) -> dict[str, Any]:
        """What `__dlpack__` gives in the end, without what it asks before: a third of the time of a small call."""
        return {name: to_dlpack(x) for name, x in arrays.items()}

    def operand(self, x: Any) -> Any:
        if not isinstance(x, torch.Tensor):
            return x
        x = x.detach().resolve_neg()  # which DLPack knows nothing of
        return x.contiguous() if x.ndim and x.shape[-1] > 1 and x.stride(-1) != 1 else x

    def parameter(self, x: Any, dtype: str, argument: str, function: str = "attention") -> Any:
        """Keeps the way back to what it was made of."""
        try:
            return torch.as_tensor(x, dtype=getattr(torch, LONG_NAMES[dtype]))
        except (TypeError, ValueError, RuntimeError):
            raise InvalidArgument(function, argument, "an array of numbers", described(x)) from None

    def joined(self, a: Any, b: Any) -> Any:
        return torch.cat([a, b], -1)

    def wants_gradient(self, x: Any) -> bool:
        return bool(x.requires_grad and torch.is_grad_enabled())

    def mask(self, mask: Any) -> Any:
        return own_mask(mask)

    def indices(self, *arrays: Any) -> tuple[Any, ...]:
        """What was written for PyTorch asks methods of tensors of them, or compares them with tensors."""
        return tuple(torch.from_numpy(x.astype("int64")) for x in arrays)

    def truths(self, answer: Any) -> Any:
        """NumPy's truth values of tensors come back as bytes."""
        return answer.astype(bool) if answer.dtype == "uint8" else answer


TENSORS = Tensors()
