"""Rotary positions of tensors: values, derivatives, graphs."""

import numpy as np
import pytest

import fovea

torch = pytest.importorskip("torch")


def turned(x, positions, base=10000.0):
    """The definition in complex numbers, half-split."""
    half = x.shape[-1] // 2
    angles = positions[:, None] * base ** (-torch.arange(half, dtype=torch.float64) * 2 / x.shape[-1])
    pairs = torch.complex(x[..., :half], x[..., half:]) * torch.polar(torch.ones_like(angles), angles)
    return torch.cat([pairs.real, pairs.imag], -1)


def test_is_its_definition_and_numpys():
    x = torch.randn(2, 3, 5, 8, dtype=torch.float64)
    got = fovea.rotate(x, fovea.Rope(8), 7)
    want = turned(x, torch.arange(7, 12, dtype=torch.float64))
    torch.testing.assert_close(got, want, rtol=0, atol=1e-14)
    assert np.array_equal(got.numpy(), fovea.rotate(x.numpy(), fovea.Rope(8), 7))
    listed = fovea.rotate(x, fovea.Rope(8), torch.arange(7, 12))
    assert torch.equal(got, listed)


@pytest.mark.parametrize("scaling", [None, fovea.YarnScaling(4, 16)])
def test_gradient(scaling):
    x = torch.randn(1, 2, 4, 6, dtype=torch.float64, requires_grad=True)
    rope = fovea.Rope(4, interleaved=True, scaling=scaling)
    assert torch.autograd.gradcheck(lambda x: fovea.rotate(x, rope, 3), (x,))
    assert torch.autograd.gradgradcheck(lambda x: fovea.rotate(x, rope, 3), (x,))


def test_in_a_graph():
    def score(q, k):
        rope = fovea.Rope(8)
        return fovea.attention(fovea.rotate(q, rope), fovea.rotate(k, rope), k, mask=fovea.Causal())

    q, k = torch.randn(2, 1, 2, 5, 8)
    compiled = torch.compile(score, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(q, k), score(q, k))
    with pytest.raises(fovea.InvalidArgument, match="rotate: x: expected a tensor on the CPU"):
        fovea.rotate(q.to("meta"), fovea.Rope(8))
