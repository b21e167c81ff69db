"""Helpers that make and read PyTorch tensors for calls."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.dlpack import to_dlpack  # type: ignore[attr-defined, unused-ignore]

from .. import _core
from .._arrays import LONG_NAMES, Library, check_unmasked, described
from .._errors import InvalidArgument
from ._kinds import own_mask

# An addition to nothing, in place, does the same where a release of PyTorch lacks the function.
_increment_version = getattr(torch.autograd.graph, "increment_version", lambda x: x[:0].add_(0))
_HAS_EXCHANGE = hasattr(torch.Tensor, "__dlpack_c_exchange_api__")


class Tensors(Library):
    arrays = (torch.Tensor,)
    noun = "a tensor of PyTorch"
    conversion = "torch.from_numpy makes tensors of arrays"
    follows = True
    deferred = True

    def empty(self, shape: tuple[int, ...], dtype: str, like: Any) -> Any:
        return torch.empty(shape, dtype=getattr(torch, LONG_NAMES[dtype]))

    def wrote(self, *arrays: Any) -> None:
        """PyTorch then refuses a backward pass that needs what they held before."""
        for x in arrays:
            if isinstance(x, torch.Tensor) and not x.is_inference():
                _increment_version(x)

    def kept(self, size: int, dtype: str) -> Any:
        return _core.kept_elements(size, dtype)

    def output(self, shape: tuple[int, ...], dtype: str, query: Any, row_major: bool) -> Any:
        if row_major or query.is_contiguous():
            return self.empty(shape, dtype, query)
        return self.following(query, shape[-1])

    def like(self, x: Any) -> Any:
        """An uninitialised tensor with the order of axes that x has in memory, the innermost axis contiguous."""
        if x.ndim and x.shape[-1] > 1 and x.stride(-1) != 1:
            return x.new_empty(x.shape)
        return torch.empty_like(x)

    def following(self, query: Any, value_dim: int) -> Any:
        """An uninitialised tensor [..., value_dim] with the query's order of axes. For a transposed query, a user's
        `y.transpose(1, 2).view(...)` then works and needs no copy."""
        if value_dim == query.shape[-1]:
            return self.like(query)
        if query.shape[-1] > 1 and query.stride(-1) != 1:
            return query.new_empty((*query.shape[:-1], value_dim))
        strides = torch.empty_like(query[..., :1]).stride()
        wider = (*(stride * value_dim for stride in strides[:-1]), 1)
        return query.new_empty_strided((*query.shape[:-1], value_dim), wider)

    def handed(self, arrays: dict[str, Any]) -> dict[str, Any]:
        """The tensors themselves if PyTorch has DLPack's exchange by functions (2.10), else the capsules that
        `__dlpack__` returns, without its checks, which take a third of the time of a small call."""
        return arrays if _HAS_EXCHANGE else {name: to_dlpack(x) for name, x in arrays.items()}

    def operand(self, x: Any) -> Any:
        if not isinstance(x, torch.Tensor):
            return x
        x = x.detach().resolve_neg()  # DLPack does not know these
        return x.contiguous() if x.ndim and x.shape[-1] > 1 and x.stride(-1) != 1 else x

    def view(self, x: Any) -> Any:
        return x.detach().resolve_neg() if isinstance(x, torch.Tensor) else x

    def row_major(self, x: Any) -> Any:
        return x.detach().resolve_neg().contiguous() if isinstance(x, torch.Tensor) else x

    def truth_bytes(self, x: Any, name: str) -> Any:
        function, _, argument = name.rpartition(".")
        check_unmasked(function, argument, x)
        try:
            found = torch.as_tensor(x)
        except (TypeError, ValueError, RuntimeError):
            raise InvalidArgument(function, argument, "an array of truth values", described(x)) from None
        if found.is_floating_point() or found.is_complex():
            raise InvalidArgument(function, argument, "an array of truth values", described(x))
        return (found != 0).to(torch.uint8).contiguous()

    def parameter(self, x: Any, dtype: str, argument: str, function: str = "attention") -> Any:
        """The parameter as a tensor; gradients still flow to the original."""
        check_unmasked(function, argument, x)
        try:
            return torch.as_tensor(x, dtype=getattr(torch, LONG_NAMES[dtype]))
        except (TypeError, ValueError, RuntimeError):
            raise InvalidArgument(function, argument, "an array of numbers", described(x)) from None

    def cast(self, x: Any) -> Any:
        """Under autocast its dtype, in which PyTorch's attention computes all but f64."""
        if not torch.is_autocast_enabled("cpu") or not isinstance(x, torch.Tensor) or x.dtype == torch.float64:
            return x
        return x.to(torch.get_autocast_dtype("cpu"))

    def joined(self, a: Any, b: Any) -> Any:
        return torch.cat([a, b], -1)

    def wants_gradient(self, x: Any) -> bool:
        return bool(x.requires_grad and torch.is_grad_enabled())

    def mask(self, mask: Any) -> Any:
        return own_mask(mask)

    def indices(self, *arrays: Any) -> tuple[Any, ...]:
        """Index tensors: functions written for PyTorch call tensor methods on them, or compare them with tensors."""
        return tuple(torch.from_numpy(x.astype("int64")) for x in arrays)

    def truths(self, answer: Any) -> Any:
        """NumPy's truth values of tensors are returned as bytes."""
        return answer.astype(bool) if answer.dtype == "uint8" else answer


TENSORS = Tensors()
