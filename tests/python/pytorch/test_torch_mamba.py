"""The functions with the arguments of mamba_ssm and causal-conv1d against PyTorch's own operations, with gradients, in graphs
and a token at a time."""

from __future__ import annotations

import doctest

import pytest

import fovea

torch = pytest.importorskip("torch")

import fovea.torch  # noqa: E402
from fovea.torch import _mamba  # noqa: E402
from torch.nn import functional as F  # noqa: E402
from torch_support import F64, rand  # noqa: E402

B, D, L, N, G, W = 2, 6, 19, 3, 2, 4


def rate(*shape, seed=9):
    return (-rand(*shape, seed=seed, grad=False).abs() - 0.1).requires_grad_()


def reference_scan(u, delta, A, B_, C, D_=None, z=None, delta_bias=None, delta_softplus=False):
    def of_channels(x):
        if x.dim() == 2:
            return x[None, :, :, None].expand(u.shape[0], -1, -1, u.shape[2])
        x = x[:, None] if x.dim() == 3 else x
        return x.repeat_interleave(u.shape[1] // x.shape[1], 1)

    step = delta if delta_bias is None else delta + delta_bias[:, None]
    step = F.softplus(step) if delta_softplus else step
    b, c, h, rows = of_channels(B_), of_channels(C), 0, []
    for t in range(u.shape[2]):
        h = torch.exp(step[:, :, t, None] * A) * h + step[:, :, t, None] * b[..., t] * u[:, :, t, None]
        rows.append((c[..., t] * h).sum(-1))
    y = torch.stack(rows, -1)
    y = y if D_ is None else y + D_[:, None] * u
    return (y if z is None else y * F.silu(z)), h


def reference_conv(x, weight, bias=None, before=None, activation=None):
    x = F.pad(x, (weight.shape[1] - 1, 0)) if before is None else torch.cat([before, x], -1)
    y = F.conv1d(x, weight[:, None], bias, groups=x.shape[1])
    return F.silu(y) if activation else y


def same(ours, theirs, leaves, limit=1e-10):
    for a, b in zip(ours, theirs):
        assert a.shape == b.shape and float((a - b).abs().max()) < limit
    weights = [torch.randn(x.shape, dtype=F64, generator=torch.Generator().manual_seed(7)) for x in theirs]
    results = [
        torch.autograd.grad(sum((x * w).sum() for x, w in zip(xs, weights)), leaves) for xs in (ours, theirs)
    ]
    for a, b in zip(*results):
        assert a.shape == b.shape and float((a - b).abs().max()) < limit


SCANS = {
    "plain": ((B, N, L), (B, N, L), {}),
    "groups": ((B, G, N, L), (B, G, N, L), {}),
    "constant B": ((D, N), (B, N, L), {}),
    "everything": ((B, N, L), (B, N, L), {"D", "z", "delta_bias"}),
}


@pytest.mark.parametrize("case", SCANS)
@pytest.mark.parametrize("softplus", [True, False])
def test_selective_scan(case, softplus):
    of_b, of_c, extra = SCANS[case]
    u, delta, A = rand(B, D, L, seed=1), rand(B, D, L, seed=2), rate(D, N)
    if not softplus:
        delta = (delta.detach().abs() + 3).requires_grad_()
    b, c = rand(*of_b, seed=3), rand(*of_c, seed=4)
    more = {"D": rand(D, seed=5), "z": rand(B, D, L, seed=6), "delta_bias": rand(D, seed=7)}
    if not softplus:
        more["delta_bias"] = more["delta_bias"].detach().abs().requires_grad_()
    more = {name: x for name, x in more.items() if name in extra}
    theirs = reference_scan(u, delta, A, b, c, more.get("D"), more.get("z"), more.get("delta_bias"), softplus)
    ours = fovea.torch.selective_scan(u, delta, A, b, c, **more, delta_softplus=softplus, return_last_state=True)
    same(ours, theirs, [u, delta, A, b, c, *more.values()])
    assert torch.equal(fovea.torch.selective_scan(u, delta, A, b, c, **more, delta_softplus=softplus), ours[0])


def test_half_precision_is_summed_in_f32():
    u, delta, A, b = (rand(*s, seed=i, dtype=torch.bfloat16, grad=False) for i, s in enumerate([(B, D, L), (B, D, L), (D, N), (B, N, L)]))
    A = -A.float().abs()
    ours, state = fovea.torch.selective_scan(u, delta, A, b, b, delta_softplus=True, return_last_state=True)
    theirs, wanted = reference_scan(u.double(), delta.double(), A.double(), b.double(), b.double(), delta_softplus=True)
    assert ours.dtype == torch.bfloat16 and state.dtype == torch.float32
    assert float((state - wanted).abs().max()) < 1e-5
    assert float((ours - theirs).abs().max()) < 2**-8 * float(theirs.abs().max())


@pytest.mark.parametrize("activation", [None, "silu", "swish"])
@pytest.mark.parametrize("width", [2, 4])
def test_causal_conv1d(activation, width):
    x, weight, bias, before = rand(B, D, L, seed=1), rand(D, width, seed=2), rand(D, seed=3), rand(B, D, width - 1, seed=4)
    theirs = reference_conv(x, weight, bias, activation=activation)
    same([fovea.torch.causal_conv1d(x, weight, bias, activation=activation)], [theirs], [x, weight, bias])
    theirs = [reference_conv(x, weight, None, before, activation), torch.cat([before, x], -1)[..., L:]]
    ours = fovea.torch.causal_conv1d(x, weight, initial_states=before, return_final_states=True, activation=activation)
    same(ours, theirs, [x, weight, before])


def test_sequences_in_a_row():
    x, weight = rand(B, D, L, seed=1), rand(D, W, seed=2)
    seq_idx = torch.tensor([[0] * 7 + [1] * (L - 7), [3] * L])
    theirs = torch.stack([torch.cat([reference_conv(x[:1, :, :7], weight), reference_conv(x[:1, :, 7:], weight)], -1)[0],
                          reference_conv(x[1:], weight)[0]])
    same([fovea.torch.causal_conv1d(x, weight, seq_idx=seq_idx)], [theirs], [x, weight])


def test_a_token_at_a_time():
    u, delta, A, b, c = rand(B, D, L, seed=1), rand(B, D, L, seed=2), rate(D, N), rand(B, N, L, seed=3), rand(B, N, L, seed=4)
    z, skip = rand(B, D, L, seed=5), rand(D, seed=6)
    weight = rand(D, W, seed=7)
    with torch.no_grad():
        whole, last = fovea.torch.selective_scan(u, delta, A, b, c, skip, z, delta_softplus=True, return_last_state=True)
        wanted = fovea.torch.causal_conv1d(u, weight, activation="silu")
        state, conv_state = torch.zeros(B, D, N, dtype=F64), torch.zeros(B, D, W + 2, dtype=F64)
        for t in range(L):
            y = fovea.torch.selective_state_update(
                state, u[..., t], delta[..., t], A, b[..., t], c[..., t], skip, z[..., t], dt_softplus=True
            )
            assert torch.equal(y, whole[..., t])
            y = fovea.torch.causal_conv1d_update(u[..., t], conv_state, weight, activation="silu")
            assert torch.equal(y, wanted[..., t])
    assert torch.equal(state, last) and torch.equal(conv_state, u.detach()[..., -(W + 2) :])


def test_compiled_with_gradients():
    x, weight, delta, A, b = rand(B, D, L, seed=1), rand(D, W, seed=2), rand(B, D, L, seed=3), rate(D, N), rand(B, N, L, seed=4)

    def run(x, weight, delta, A, b):
        y = fovea.torch.causal_conv1d(x, weight, activation="silu")
        return fovea.torch.selective_scan(y, delta, A, b, b, delta_softplus=True)

    leaves = [x, weight, delta, A, b]
    compiled = torch.compile(run, fullgraph=True, backend="aot_eager")
    same([compiled(*leaves)], [run(*leaves)], leaves)


def test_opcheck():
    x, weight = rand(B, L, D, seed=1), rand(D, W, seed=2)
    torch.library.opcheck(torch.ops.fovea.causal_conv, (x, weight, None, None, None, None, "silu", True))


def test_errors():
    u, A, b = rand(B, D, L), rate(D, N), rand(B, N, L)
    for call, argument in (
        (lambda: fovea.torch.selective_scan(u[0], u, A, b, b), "u"),
        (lambda: fovea.torch.selective_scan(u, u, -A, b, b, delta_softplus=True), "A"),
        (lambda: fovea.torch.selective_scan(u, u, A, b[:, :-1], b, delta_softplus=True), "B"),
        (lambda: fovea.torch.causal_conv1d(u, rand(D, W), activation="relu"), "activation"),
        (lambda: fovea.torch.causal_conv1d(u, rand(D, 9)), "weight"),
        (lambda: fovea.torch.causal_conv1d_update(u, rand(B, D, 1), rand(D, W)), "conv_state"),
        (lambda: fovea.torch.causal_conv1d(u, rand(D, W), seq_idx=torch.zeros(B, L), return_final_states=True), "seq_idx"),
    ):
        with pytest.raises(fovea.InvalidArgument) as caught:
            call()
        assert caught.value.argument == argument, caught.value


def test_examples():
    assert doctest.testmod(_mamba, extraglobs={"fovea": fovea}).failed == 0
