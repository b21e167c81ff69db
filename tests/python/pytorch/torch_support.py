"""Helpers of the tests under PyTorch. (The folder is not called torch: `import torch` would find it.)"""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402
from torch.nn.functional import scaled_dot_product_attention as theirs  # noqa: E402

F64 = torch.float64
UNIT = {torch.float64: 2.0**-53, torch.float32: 2.0**-24, torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}


def math_sdpa(*args, **kwargs):
    """PyTorch's own attention, by its math backend."""
    with sdpa_kernel(SDPBackend.MATH):
        return theirs(*args, **kwargs)


def rand(*shape, seed=0, dtype=F64, grad=True):
    return torch.randn(shape, dtype=F64, generator=torch.Generator().manual_seed(seed)).to(dtype).requires_grad_(grad)


def tensors(*shapes, dtype=F64, seed=0, grad=False):
    generator = torch.Generator().manual_seed(seed)
    found = [torch.randn(shape, dtype=F64, generator=generator).to(dtype) for shape in shapes]
    return [x.requires_grad_(grad) for x in found]


def bound(q, k, v, extra=0.0):
    """An upper bound of the rounding error of an output, for each element.

    A product of d terms is off by d·u of the sum of their sizes; a weight relatively by twice the largest error
    of its scores and by key_len·u of the sum; 16-bit kernels may also round weights and output to 16 bits.
    `extra`: the size of numbers that mods add to scores.
    """
    unit = UNIT[q.dtype]
    add = unit if q.dtype == F64 else UNIT[torch.float32]
    group = q.shape[1] // max(1, k.shape[1])
    sizes = q.abs().double() @ k.abs().double().repeat_interleave(group, 1).transpose(-1, -2)
    largest = sizes.max().item() / q.shape[-1] ** 0.5 + extra if sizes.numel() else extra
    scores = (q.shape[-1] + 8) * add * largest
    weights = 2 * scores + (k.shape[-2] + 16) * add + (3 * unit if unit > 1e-4 else 0)
    return weights * (v.abs().max().item() if v.numel() else 0.0) + 4 * unit


def plain(q, k, v, score_mod=lambda s, h, i, j: s, visible=None, normalize=None, scale=None, offset=None):
    """Attention written out in PyTorch operations, for autograd: [b, h, i, d] each, kv heads repeated. (output, weights, lse)."""
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    s = q @ k.transpose(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    h = torch.arange(q.shape[1]).reshape(1, -1, 1, 1)
    i = torch.arange(q.shape[2]).reshape(1, 1, -1, 1) + (k.shape[2] - q.shape[2] if offset is None else offset)
    j = torch.arange(k.shape[2]).reshape(1, 1, 1, -1)
    s = score_mod(s, h, i, j)
    if visible is not None:
        s = s.masked_fill(~visible(i, j), -torch.inf)
    lse = torch.logsumexp(s, -1)
    p = torch.softmax(s, -1).nan_to_num() if normalize is None else normalize(s)
    return p @ v, p, lse


def outer(k, v):
    return k[..., :, None] * v[..., None, :]
