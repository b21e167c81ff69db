"""Query offsets by batch entry on tensors: with gradients, in a graph, under vmap, and given as a tensor."""

import pytest
from torch_support import tensors, torch

import fovea
import fovea.torch

B, H, N, M, D = 3, 2, 4, 12, 8
OFFSETS = (8, 0, 3)
SEEN = torch.rand(B, H, N, M, generator=torch.Generator().manual_seed(4)) < 0.7
MASKS = {
    "causal": lambda b: fovea.Causal(),
    "array": lambda b: SEEN if b is None else SEEN[b : b + 1],
    "function": lambda b: lambda batch, h, i, j: (j <= i) & ((i + j + h) % 3 != 0),
}


def qkv():
    return tensors((B, H, N, D), (B, H, M, D), (B, H, M, D), grad=True)


def each_alone(mask, q, k, v):
    calls = [
        fovea.attention(q[b : b + 1], k[b : b + 1], v[b : b + 1], mask=mask(b), query_offset=offset)
        for b, offset in enumerate(OFFSETS)
    ]
    return torch.cat(calls)


@pytest.mark.parametrize("offsets", [OFFSETS, torch.tensor(OFFSETS)], ids=["tuple", "tensor"])
@pytest.mark.parametrize("name", MASKS)
def test_an_entry_gives_the_same_as_alone(name, offsets):
    arrays = qkv()
    out = fovea.attention(*arrays, mask=MASKS[name](None), query_offset=offsets)
    want = each_alone(MASKS[name], *arrays)
    assert torch.equal(out, want)
    d = torch.randn(out.shape, dtype=out.dtype, generator=torch.Generator().manual_seed(5))
    for got, alone in zip(torch.autograd.grad(out, arrays, d), torch.autograd.grad(want, arrays, d)):
        torch.testing.assert_close(got, alone)


@pytest.mark.parametrize("name", MASKS)
def test_in_a_graph(name):
    arrays = qkv()
    torch._dynamo.reset()
    graph = torch.compile(
        lambda q, k, v, at: fovea.attention(q, k, v, mask=MASKS[name](None), query_offset=at),
        fullgraph=True,
        backend="aot_eager",
    )
    for offsets in (OFFSETS, (1, 7, 2)):
        at = torch.tensor(offsets)
        out, want = graph(*arrays, at), fovea.attention(*arrays, mask=MASKS[name](None), query_offset=at)
        assert torch.equal(out, want)
        d = torch.ones_like(out)
        for got, alone in zip(torch.autograd.grad(out, arrays, d), torch.autograd.grad(want, arrays, d)):
            assert torch.equal(got, alone)


def test_under_vmap_and_grad():
    arrays = [x.detach() for x in qkv()]
    more = [torch.stack([x, 2 * x]) for x in arrays]
    at = torch.tensor([OFFSETS, (1, 7, 2)])

    def loss(q, k, v, offsets):
        return fovea.attention(q, k, v, mask=fovea.Causal(), query_offset=offsets).square().sum()

    found = torch.func.vmap(torch.func.grad(loss, (0, 1, 2)))(*more, at)
    for n in range(2):
        own = [x[n].clone().requires_grad_() for x in more]
        want = torch.autograd.grad(loss(*own, tuple(at[n].tolist())), own)
        assert all(torch.equal(got[n], alone) for got, alone in zip(found, want))


def test_the_operator_follows_its_schema():
    q, k, v = (x.detach() for x in qkv())
    text = "\n".join(
        ["score scaled-dot", "mask causal", "normalizer softmax", "dropout 0.0", "hidden 0", "lse 1", "weights 1"]
    )
    torch.library.opcheck(
        torch.ops.fovea.attend.default,
        (q, k, v, [], [], None, torch.tensor(OFFSETS), None, None, None, None, text),
        test_utils=("test_schema", "test_faketensor"),
    )


@pytest.mark.parametrize("offsets", [torch.tensor([1, 2]), torch.ones(B), torch.tensor([0, 0, 1 << 31])])
def test_other_tensors_are_refused_by_name(offsets):
    with pytest.raises(fovea.InvalidArgument, match="query_offset"):
        fovea.attention(*qkv(), mask=fovea.Causal(), query_offset=offsets)


QUERY_STARTS, KEY_STARTS = (0, 4, 5, 5, 8), (0, 4, 13, 15, 27)


def packed():
    return tensors((1, H, 8, D), (1, H, 27, D), (1, H, 27, D), grad=True)


def each_entry(q, k, v):
    calls = []
    for q0, q1, k0, k1 in zip(QUERY_STARTS, QUERY_STARTS[1:], KEY_STARTS, KEY_STARTS[1:]):
        calls.append(fovea.attention(q[:, :, q0:q1], k[:, :, k0:k1], v[:, :, k0:k1], mask=fovea.Causal()))
    return torch.cat(calls, 2)


@pytest.mark.parametrize("graph", [False, True], ids=["plain", "compiled"])
def test_packed_entries_give_the_same_as_alone(graph):
    arrays, starts = packed(), [torch.tensor(QUERY_STARTS), torch.tensor(KEY_STARTS)]

    def call(q, k, v, query_starts, key_starts):
        return fovea.attention(q, k, v, mask=fovea.Causal(), query_starts=query_starts, key_starts=key_starts)

    if graph:
        torch._dynamo.reset()
        call = torch.compile(call, fullgraph=True, backend="aot_eager")
    out, want = call(*arrays, *starts), each_entry(*arrays)
    assert torch.equal(out, want)
    d = torch.randn(out.shape, dtype=out.dtype, generator=torch.Generator().manual_seed(5))
    for got, alone in zip(torch.autograd.grad(out, arrays, d), torch.autograd.grad(want, arrays, d)):
        torch.testing.assert_close(got, alone)


def test_gradients_of_the_log_sum_exp_of_packed_entries():
    q, k, v = packed()
    where = {"query_starts": QUERY_STARTS, "key_starts": KEY_STARTS, "mask": fovea.Causal()}
    _, lse = fovea.attention(q, k, v, return_lse=True, **where)
    found = torch.autograd.grad(lse.square().sum(), (q, k))
    own = [
        fovea.attention(q[:, :, a:b], k[:, :, c:d], v[:, :, c:d], mask=fovea.Causal(), return_lse=True)[1]
        for a, b, c, d in zip(QUERY_STARTS, QUERY_STARTS[1:], KEY_STARTS, KEY_STARTS[1:])
    ]
    want = torch.autograd.grad(torch.cat(own, 2).square().sum(), (q, k))
    for got, alone in zip(found, want):
        torch.testing.assert_close(got, alone)


def test_packed_weights_and_mask_functions_are_refused_in_a_graph():
    arrays, starts = [x.detach() for x in packed()], [torch.tensor(QUERY_STARTS), torch.tensor(KEY_STARTS)]

    def weights(q, k, v, query_starts, key_starts):
        return fovea.attention(q, k, v, return_weights=True, query_starts=query_starts, key_starts=key_starts)

    def function(q, k, v, query_starts, key_starts):
        return fovea.attention(q, k, v, mask=lambda b, h, i, j: j <= i, query_starts=query_starts, key_starts=key_starts)

    for call, said in ((weights, "return_weights"), (function, "no function in a graph")):
        call(*arrays, *starts)  # outside a graph it may
        torch._dynamo.reset()
        with pytest.raises(Exception, match=said):
            torch.compile(call, fullgraph=True, backend="aot_eager")(*arrays, *starts)
