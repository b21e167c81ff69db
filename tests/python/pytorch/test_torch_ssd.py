"""fovea.torch.ssd, which has the arguments of mamba_ssm's scan of Mamba-2, against a loop over tokens."""

from __future__ import annotations

import math

import pytest

import fovea

torch = pytest.importorskip("torch")

from torch_support import F64, outer, rand  # noqa: E402

import fovea.torch  # noqa: E402

B, T, HV, K, V = 2, 21, 4, 5, 3


def mamba(groups=2, dtype=F64):
    x, dt = rand(B, T, HV, V, seed=1), rand(B, T, HV, seed=2)
    A = (-rand(HV, seed=3, grad=False).abs()).requires_grad_()
    Bs, Cs = rand(B, T, groups, K, seed=4), rand(B, T, groups, K, seed=5)
    return x, dt, A, Bs, Cs


def loop_of_ssd(x, dt, A, Bs, Cs, D=None, z=None, state=None, begins=None):
    group = x.shape[2] // Bs.shape[2]
    Bs, Cs = (t.repeat_interleave(group, 2) for t in (Bs, Cs))
    state = torch.zeros(B, HV, V, K, dtype=F64) if state is None else state
    outputs = []
    for t in range(x.shape[1]):
        if begins is not None:
            state = torch.where(begins[:, t, None, None, None], 0.0, state)
        state = torch.exp(dt[:, t] * A)[..., None, None] * state + outer(dt[:, t, :, None] * x[:, t], Bs[:, t])
        outputs.append(torch.einsum("bhpn,bhn->bhp", state, Cs[:, t]))
    y = torch.stack(outputs, 1)
    if D is not None:
        y = y + x * (D[:, None] if D.dim() == 1 else D)
    return (y if z is None else y * torch.nn.functional.silu(z)), state


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("skip", [(HV,), (HV, V), None])
def test_ssd(groups, skip):
    x, dt, A, Bs, Cs = mamba(groups)
    D, z = None if skip is None else rand(*skip, seed=6), rand(B, T, HV, V, seed=7)
    bias, state = rand(HV, seed=10), rand(B, HV, V, K, seed=8)
    steps = torch.nn.functional.softplus(dt + bias).clamp(0.1, 2.0)
    want = loop_of_ssd(x, steps, A, Bs, Cs, D, z, state)
    got = fovea.torch.ssd(
        x, dt, A, Bs, Cs, 16, D=D, z=z, dt_bias=bias, initial_states=state, dt_softplus=True, dt_limit=(0.1, 2.0),
        return_final_states=True,
    )
    inputs = [t for t in (x, dt, A, Bs, Cs, D, z, bias, state) if t is not None]
    losses = [rand(*t.shape, seed=20 + n, grad=False) for n, t in enumerate(want)]
    for a, b in zip(got, want):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-11)
    for a, b in zip(*(torch.autograd.grad(t, inputs, losses) for t in (got, want))):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


def test_ssd_of_packed_sequences():
    x, dt, A, Bs, Cs = mamba()
    steps = dt.abs()
    index = torch.zeros(B, T, dtype=torch.int32)
    index[0, 7:], index[1, 3:], index[1, 12:] = 1, 1, 2
    begins = torch.zeros(B, T, dtype=torch.bool)
    begins[0, 7] = begins[1, 3] = begins[1, 12] = True
    state = rand(B, HV, V, K, seed=8)
    got = fovea.torch.ssd(x, steps, A, Bs, Cs, initial_states=state, seq_idx=index, return_final_states=True)
    want = loop_of_ssd(x, steps, A, Bs, Cs, state=state, begins=begins)
    losses = [rand(*t.shape, seed=20 + n, grad=False) for n, t in enumerate(want)]
    for a, b in zip(got, want):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-11)
    inputs = (x, dt, A, Bs, Cs, state)
    for a, b in zip(*(torch.autograd.grad(t, inputs, losses, retain_graph=True) for t in (got, want))):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)
    one = [t[:1] for t in (x, steps)] + [A] + [t[:1] for t in (Bs, Cs)]
    y, states = fovea.torch.ssd(*one, cu_seqlens=[0, 7, T], return_varlen_states=True)
    torch.testing.assert_close(y, loop_of_ssd(x, steps, A, Bs, Cs, begins=begins)[0][:1], rtol=1e-11, atol=1e-11)
    torch.testing.assert_close(states[1:], want[1][:1], rtol=1e-11, atol=1e-11)


def packed_ssd(x, dt, A, Bs, Cs, starts, index, **more):
    """mamba_ssm's usual call for packed sequences: seq_idx beside cu_seqlens."""
    one = [t[:1].detach() for t in (x, dt.abs())] + [A] + [t[:1].detach() for t in (Bs, Cs)]
    options = {"return_varlen_states": True, "return_final_states": True}
    return fovea.torch.ssd(*one, 16, cu_seqlens=starts, seq_idx=index, **options, **more)


def test_ssd_of_packed_sequences_with_both_lists():
    inputs = mamba()
    index = torch.tensor([[0] * 7 + [1] * (T - 7)], dtype=torch.int32)
    for starts in ([0, 7, T], torch.tensor([0, 7, T], dtype=torch.int32), [0, 0, 7, 7, T, T]):
        want = packed_ssd(*inputs, starts, None)
        for a, b in zip(packed_ssd(*inputs, starts, index), want):
            assert torch.equal(a, b)
    alone = packed_ssd(*inputs, [0, T], torch.full((1, T), 3))
    assert torch.equal(alone[0], packed_ssd(*inputs, [0, T], None)[0])
    later = index.roll(1, 1)
    later[0, 0] = 0
    for wrong, got in ((later, r"\[8\]"), (torch.zeros_like(index), r"\[\]"), (torch.arange(T)[None], r"\[1, 2, ")):
        with pytest.raises(fovea.InvalidArgument, match=rf"ssd: seq_idx: .* got new sequences at {got}.* beside \[0, 7, {T}\]"):
            packed_ssd(*inputs, [0, 7, T], wrong)
    for wrong in (3, "a", [0.5, 1.0], [[0, 7, T]]):
        with pytest.raises(fovea.InvalidArgument, match="ssd: cu_seqlens: expected whole numbers in one axis"):
            packed_ssd(*inputs, wrong, index)
    with pytest.raises(fovea.InvalidArgument, match="ssd: initial_states: expected None beside return_varlen_states"):
        packed_ssd(*inputs, [0, 7, T], index, initial_states=rand(1, HV, V, K))
    two = torch.zeros(2, T, dtype=torch.int32)
    with pytest.raises(fovea.InvalidArgument, match="ssd: x: expected a batch of 1 beside return_varlen_states=True"):
        fovea.torch.ssd(*inputs, cu_seqlens=[0, T], seq_idx=two, return_varlen_states=True)


def test_a_nan_stays_in_its_sequence():
    """By either list, forward and backward: the first and the last sequence keep the bits that they have without it."""
    inputs, index, starts = mamba(), torch.tensor([[0] * 7 + [1] * 6 + [2] * (T - 13), [4] * T]), [0, 7, 13, T]
    inputs = [inputs[0], inputs[1].detach().abs().requires_grad_(), *inputs[2:]]

    def run(x, states, **lists):
        of_entries = [t[: x.shape[0]] for t in (inputs[1], *inputs[3:])]
        y = fovea.torch.ssd(x, of_entries[0], inputs[2], *of_entries[1:], return_final_states=True, **lists, **states)
        return [*y, *torch.autograd.grad(y[0][:, [*range(7), *range(13, T)]].square().sum(), (x, *of_entries))]

    for lists in ({"seq_idx": index}, {"cu_seqlens": starts, "return_varlen_states": True, "seq_idx": index[:1]}):
        x = inputs[0][: len(lists["seq_idx"])].detach().clone().requires_grad_()
        states = {"initial_states": rand(B, HV, V, K, seed=8)} if len(x) == B else {}
        want = run(x, states, **lists)
        with torch.no_grad():
            x[0, 10] = math.nan
        got = run(x, states, **lists)
        assert got[0][0, 7:13].isnan().any() and torch.equal(got[1][0], want[1][0])
        for a, b in zip(got[:1] + got[-4:], want[:1] + want[-4:]):
            assert torch.equal(a[0, :7], b[0, :7]) and torch.equal(a[0, 13:], b[0, 13:]) and torch.equal(a[1:], b[1:])


def test_ssd_of_seq_idx_in_a_graph():
    """There a new sequence is a gate of minus infinity, which stops no NaN (docs/recurrence.md)."""
    inputs = mamba()
    index = torch.tensor([[0] * 7 + [1] * 6 + [2] * (T - 13), [4] * T])

    def call(x):
        return fovea.torch.ssd(x, *inputs[1:], dt_softplus=True, seq_idx=index, return_final_states=True)

    graph = torch.compile(call, backend="aot_eager", fullgraph=True)
    for a, b in zip(graph(inputs[0]), call(inputs[0])):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-11)
    none = [t[:, :0] for t in (inputs[0], inputs[1])] + [inputs[2]] + [t[:, :0] for t in inputs[3:]]
    y, states = fovea.torch.ssd(*none, seq_idx=index[:, :0], return_final_states=True)
    assert y.shape == (B, 0, HV, V) and (states == 0).all()


def test_ssd_of_packed_sequences_in_a_graph():
    inputs, starts = mamba(), torch.tensor([0, 7, T])
    index = torch.tensor([[0] * 7 + [1] * (T - 7)])
    graph = torch.compile(packed_ssd, backend="aot_eager", fullgraph=True)
    for a, b in zip(graph(*inputs, starts, index), packed_ssd(*inputs, starts, index)):
        assert torch.equal(a, b)
    with pytest.raises(RuntimeError, match="a new number at each token at which cu_seqlens begins a sequence"):
        graph(*inputs, starts, torch.zeros_like(index))


def test_ssd_in_a_graph_and_in_bf16():
    x, dt, A, Bs, Cs = (t.detach().bfloat16() for t in mamba())

    def call(x, dt, Bs, Cs):
        return fovea.torch.ssd(x, dt, A, Bs, Cs, dt_softplus=True, return_final_states=True)

    got, state = call(x, dt, Bs, Cs)
    graph, _ = torch.compile(call, backend="aot_eager", fullgraph=True)(x, dt, Bs, Cs)
    assert torch.equal(got, graph) and got.dtype == torch.bfloat16 and state.dtype == torch.float32
    want, _ = fovea.torch.ssd(*(t.double() for t in (x, dt, A, Bs, Cs)), dt_softplus=True, return_final_states=True)
    torch.testing.assert_close(got.double(), want, rtol=2**-8, atol=1e-4)


def test_refused():
    f = fovea.torch
    x, dt, A, Bs, Cs = mamba()
    for call, says in (
        (lambda: f.ssd(x, dt[:, :3], A, Bs, Cs), "ssd: dt"),
        (lambda: f.ssd(x, dt, A[:1], Bs, Cs), "ssd: A"),
        (lambda: f.ssd(x, dt, -A, Bs, Cs, dt_softplus=True), "ssd: A: expected logarithms of decays, at most 0"),
        (lambda: f.ssd(x, dt, A, Bs[:, :, :, 0], Cs), "ssd: B: expected a tensor of 4 axes"),
        (lambda: f.ssd(x, dt, A, Bs, Cs, seq_idx=dt), "ssd: seq_idx"),
        (lambda: f.ssd(x, dt, A, Bs, Cs, return_varlen_states=True), "ssd: cu_seqlens"),
    ):
        with pytest.raises(fovea.InvalidArgument, match=says):
            call()
