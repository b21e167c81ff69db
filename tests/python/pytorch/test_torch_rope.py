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


def test_equals_the_definition_and_numpy():
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


def made(*shape):
    angles = torch.rand(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(3)) * 6
    return angles.cos(), angles.sin()


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("batch", [(), (2,)])
def test_tables(interleaved, batch):
    x = torch.randn(2, 2, 3, 8, dtype=torch.float64, requires_grad=True)
    tables = fovea.RopeTables(*made(*batch, 7, 3), interleaved)
    for positions in (4, torch.tensor([6, 0, 2]), torch.tensor([[6, 0, 2], [1, 1, 5]]), [[6, 0, 2], [1, 1, 5]]):
        got = fovea.rotate(x, tables, positions)
        arrays = fovea.RopeTables(tables.cos.numpy(), tables.sin.numpy(), interleaved)
        numbers = positions.numpy() if isinstance(positions, torch.Tensor) else positions
        assert np.array_equal(got.detach().numpy(), fovea.rotate(x.detach().numpy(), arrays, numbers))
        turn = lambda x: fovea.rotate(x, tables, positions)  # noqa: E731
        assert torch.autograd.gradcheck(turn, (x,)) and torch.autograd.gradgradcheck(turn, (x,))


def test_tables_in_a_graph():
    """Positions are a tensor in the graph, so other positions need no new graph."""
    compiled = torch.compile(
        lambda x, cos, sin, positions: fovea.rotate(x, fovea.RopeTables(cos, sin), positions) * 2,
        backend="aot_eager",
        fullgraph=True,
    )
    cos, sin = (table.float() for table in made(9, 4))
    x = torch.randn(1, 2, 3, 8, requires_grad=True)
    torch.compiler.reset()
    for positions in ([0, 1, 2], [8, 3, 3]):
        with torch.compiler.set_stance("default" if positions[0] == 0 else "fail_on_recompile"):
            out = compiled(x, cos, sin, torch.tensor(positions))
        wanted = fovea.rotate(x, fovea.RopeTables(cos, sin), positions) * 2
        assert torch.equal(out, wanted)
        assert torch.equal(*(torch.autograd.grad(y.square().sum(), x)[0] for y in (out, wanted)))


def test_tables_refuse_wrong_arguments():
    x, (cos, sin) = torch.randn(1, 2, 3, 8), made(9, 4)
    with pytest.raises(fovea.InvalidArgument, match="cos: expected a table that wants no gradient"):
        fovea.rotate(x, fovea.RopeTables(cos.requires_grad_(), sin))
    cos = cos.detach()
    with pytest.raises(fovea.InvalidArgument, match="positions: expected whole numbers, got torch.float32"):
        fovea.rotate(x, fovea.RopeTables(cos, sin), torch.ones(3))
    with pytest.raises(fovea.InvalidArgument, match="positions: expected a number, .3. or .1, 3., got .2."):
        fovea.rotate(x, fovea.RopeTables(cos, sin), torch.arange(2))
    with pytest.raises(fovea.InvalidArgument, match="cos: expected a tensor on the CPU"):
        fovea.rotate(x, fovea.RopeTables(cos.to("meta"), sin))
