"""Batches that look like one of their entries: those of torch.func.vmap, and those of gradients that
`torch.autograd.grad(is_grads_batched=True)` and `torch.autograd.functional.jacobian(vectorize=True)` send backward.

A batch is a loop over calls. Folding it into the batch axis would repeat query, key and value for each of its
entries, and draw other dropout, which is keyed by the position in the batch axis.
"""

from __future__ import annotations

from typing import Any, Callable, Optional, Sequence

import torch
from torch import Tensor


def is_wrapped(*tensors: Optional[Tensor]) -> bool:
    """Does any stand for a batch, or for a level of a transform of torch.func?"""
    kinds = torch._C._functorch
    return any(x is not None and (is_legacy(x) or kinds.is_functorch_wrapped_tensor(x)) for x in tensors)


def is_legacy(x: Any) -> bool:
    """Does it belong to the vmap inside torch.autograd, which is older than that of torch.func and has its own key?"""
    return isinstance(x, Tensor) and torch._C._functorch.is_legacy_batchedtensor(x)


def _entry(x: Any, axes: Any, index: int, size: int) -> Any:
    """Of an argument whose batch axis is `axes`; a list of arguments has a list of axes."""
    if isinstance(x, (list, tuple)) and isinstance(axes, (list, tuple)):
        return [_entry(part, axis, index, size) for part, axis in zip(x, axes)]
    if axes is None or not isinstance(x, Tensor):
        return x
    return x.select(axes, index) if size else x.new_zeros(x.movedim(axes, 0).shape[1:])


def _each(call: Callable[..., Any], size: int, axes: Sequence[Any], arguments: Sequence[Any]) -> Any:
    """What `call` gives for each entry of a batch, stacked: a tensor, or a list or tuple of them."""
    found = []
    for index in range(max(size, 1)):  # an empty batch takes one call too: its results have the shapes
        found.append(call(*(_entry(x, axis, index, size) for x, axis in zip(arguments, axes))))
    if isinstance(found[0], Tensor):
        return torch.stack(found)[:size]
    return type(found[0])(torch.stack(parts)[:size] for parts in zip(*found))


def vmap_rule(call: Callable[..., Any]) -> Callable[..., Any]:
    """What torch.func.vmap does with a function of tensors, lists of tensors, and constants."""

    def rule(info: Any, in_dims: Any, *arguments: Any) -> Any:
        found = _each(call, info.batch_size, in_dims, arguments)
        return found, 0 if isinstance(found, Tensor) else type(found)(0 for _ in found)

    return rule


def legacy_rule(call: Callable[..., Any]) -> Callable[..., Any]:
    """What the vmap inside torch.autograd does with such a function: a kernel for the dispatch key Batched."""

    def kernel(*arguments: Any) -> Any:
        level = torch._C._vmapmode_increment_nesting() - 1
        torch._C._vmapmode_decrement_nesting()
        sizes = {1}

        def without(x: Any) -> Any:
            """(the argument, its batch axis). A batch of an outer level alone gets a batch axis of size 1 here."""
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
