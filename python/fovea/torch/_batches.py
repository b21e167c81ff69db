"""Batched tensors, which look like one entry of their batch. torch.func.vmap makes them; so do
`torch.autograd.grad(is_grads_batched=True)` and `torch.autograd.functional.jacobian(vectorize=True)` for gradients.

A batch becomes a loop over calls. Folding it into the batch axis was rejected: query, key and value would be repeated
for each entry, and dropout would differ, because it is keyed by the position in the batch axis.
"""

from __future__ import annotations

from typing import Any, Callable, Optional, Sequence

import torch
from torch import Tensor


def is_wrapped(*tensors: Optional[Tensor]) -> bool:
    """Whether any tensor is batched, or belongs to a level of a transform of torch.func."""
    kinds = torch._C._functorch
    return any(x is not None and (is_legacy(x) or kinds.is_functorch_wrapped_tensor(x)) for x in tensors)


def is_legacy(x: Any) -> bool:
    """Whether the tensor belongs to the vmap inside torch.autograd, which is older than torch.func's and has its own
    key."""
    return isinstance(x, Tensor) and torch._C._functorch.is_legacy_batchedtensor(x)


def _entry(x: Any, axes: Any, index: int, size: int) -> Any:
    """One entry of an argument whose batch axis is `axes`; a list of arguments has a list of axes."""
    if isinstance(x, (list, tuple)) and isinstance(axes, (list, tuple)):
        return [_entry(part, axis, index, size) for part, axis in zip(x, axes)]
    if axes is None or not isinstance(x, Tensor):
        return x
    return x.select(axes, index) if size else x.new_zeros(x.movedim(axes, 0).shape[1:])


def _each(call: Callable[..., Any], size: int, axes: Sequence[Any], arguments: Sequence[Any]) -> Any:
    """The results of `call` for all entries of a batch, stacked: a tensor, or a list or tuple of them."""
    found = []
    for index in range(max(size, 1)):  # an empty batch takes one call too, for the shapes of the results
        found.append(call(*(_entry(x, axis, index, size) for x, axis in zip(arguments, axes))))
    if isinstance(found[0], Tensor):
        return torch.stack(found)[:size]
    return type(found[0])(torch.stack(parts)[:size] for parts in zip(*found))


def vmap_rule(call: Callable[..., Any]) -> Callable[..., Any]:
    """The rule of torch.func.vmap for a function of tensors, lists of tensors, and constants."""

    def rule(info: Any, in_dims: Any, *arguments: Any) -> Any:
        found = _each(call, info.batch_size, in_dims, arguments)
        return found, 0 if isinstance(found, Tensor) else type(found)(0 for _ in found)

    return rule


def legacy_rule(call: Callable[..., Any]) -> Callable[..., Any]:
    """The rule of the vmap inside torch.autograd for such a function: a kernel for the dispatch key Batched."""

    def kernel(*arguments: Any) -> Any:
        level = torch._C._vmapmode_increment_nesting() - 1
        torch._C._vmapmode_decrement_nesting()
        sizes = {1}

        def without(x: Any) -> Any:
            """(the argument, its batch axis). An argument batched only at an outer level gets a batch axis of size 1
            here."""
            if isinstance(x, (list, tuple)):
                parts = [without(part) for part in x]
                return [part for part, _ in parts], [axis for _, axis in parts]
            if not is_legacy(x):
                return x, None
            x = torch._remove_batch_dim(x, level, 1, 0)
            sizes.add(x.shape[0])
            return x, 0

        given = [without(x) for x in arguments]
        size = 0 if 0 in sizes else max(sizes)
        whole = [_expanded(x, axis, size) for x, axis in given]
        found = _each(call, size, [axis for _, axis in given], whole)
        if isinstance(found, Tensor):
            return torch._add_batch_dim(found, 0, level)
        return type(found)(torch._add_batch_dim(x, 0, level) for x in found)

    return kernel


def _expanded(x: Any, axes: Any, size: int) -> Any:
    if isinstance(axes, list):
        return [_expanded(part, axis, size) for part, axis in zip(x, axes)]
    return x if axes is None else x.expand(size, *x.shape[1:])


__all__ = ["is_legacy", "is_wrapped", "legacy_rule", "vmap_rule"]
