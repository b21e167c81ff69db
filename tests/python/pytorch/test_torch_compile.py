"""The operator fovea::attend: torch.compile, opcheck, dispatch modes; and seeds, with and without a graph."""

import gc
import shutil
import weakref

import pytest
from torch_support import F64, tensors, torch

import fovea
import fovea.torch

BACKENDS = ["aot_eager"] + (["inductor"] if shutil.which("c++") or shutil.which("g++") else [])
B, H, G, N, M, D = 2, 4, 2, 6, 9, 8


def qkv(grad=True, n=N, m=M):
    return tensors((B, H, n, D), (B, G, m, D), (B, G, m, D), grad=grad)


def compiled(call, **options):
    torch._dynamo.reset()
    return torch.compile(call, fullgraph=True, **options)


def everything(q, k, v, slope, sink, lengths, table):
    visible = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).tril(2)
    return fovea.attention(
        q,
        k,
        v,
        mods=[fovea.SoftCap(5.0), fovea.AlibiBias(slope), fovea.RelativeBias(table, 8)],
        mask=~fovea.Chunked(100) | fovea.ArrayMask(visible) & fovea.KeyLengths(lengths),
        normalizer=fovea.SoftmaxWithSink(sink),
        return_lse=True,
        return_weights=True,
    )


def a_function(q, k, v):
    return fovea.attention(q, k, v, mask=lambda b, h, i, j: (i - j) % 3 == 0)


def a_float_mask(q, k, v):
    return fovea.attention(q, k, v, mask=torch.zeros(q.shape[2], k.shape[2]) - 1.5, query_offset=k.shape[2] - 2)


def pointers(q, k, v):
    return fovea.attention(q, k, None, weight_heads=[1], weight_rows=[0, 2], scale=0.3)


def sdpa(q, k, v):
    return fovea.torch.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)


def theirs(q, k, v):
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, dropout_p=0.0, enable_gqa=True)


def put_under(q, k, v):
    with fovea.torch.patched():
        return theirs(q, k, v)


def same(compiled_call, call, arrays):
    for x in arrays:
        x.grad = None
    wanted = [x for x in arrays if x.requires_grad]
    found, expected = compiled_call(*arrays), call(*arrays)
    found, expected = (x if isinstance(x, tuple) else (x,) for x in (found, expected))
    for x, y in zip(found, expected):
        assert x.shape == y.shape and torch.allclose(x, y, atol=1e-14)
    sums = (sum(x.square().sum() for x in results) for results in (found, expected))
    grads = [torch.autograd.grad(total, wanted, allow_unused=True) for total in sums]
    for x, y in zip(*grads):
        x, y = (0.0 * wanted[0].sum() if g is None else g for g in (x, y))
        assert torch.allclose(x, y, atol=1e-13)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dynamic", [False, True])
def test_a_graph_of_everything(backend, dynamic):
    slope, sink, table = tensors((H,), (H,), (H, 10), grad=True)
    run = compiled(everything, backend=backend, dynamic=dynamic)
    lengths = torch.tensor([9, 4])
    same(run, everything, [*qkv(), slope, sink, lengths, table])
    if dynamic:
        more = [*qkv(n=5, m=7), slope, sink, lengths - 2, table]
        with torch._dynamo.config.patch(error_on_recompile=True):
            same(run, everything, more)


@pytest.mark.parametrize("call", [a_function, a_float_mask, pointers, sdpa, put_under])
@pytest.mark.parametrize("dynamic", [False, True])
def test_graphs(call, dynamic):
    run = compiled(call, backend="aot_eager", dynamic=dynamic)
    same(run, call, qkv())
    same(run, call, qkv(n=3, m=5))


def test_a_graph_compiled_under_the_mode():
    run = compiled(theirs, backend="aot_eager")
    arrays = qkv()
    with fovea.torch.patched():
        inside = run(*arrays)
        assert torch.equal(inside, theirs(*arrays))
    outside = run(*arrays)
    assert torch.equal(outside, theirs(*arrays))


def test_opcheck():
    spec = "score scaled-dot\nmod bias\nmask & causal array:0\nnormalizer softmax\ndropout 0.25\nhidden 0"
    spec += "\nparameter mods[0].bias\nweights 1"
    (bias,) = tensors((H, 1, M), grad=True)
    visible = torch.ones(1, 1, N, M, dtype=torch.bool)
    arguments = (*qkv(), [bias], [visible], None, None, None, None, torch.tensor(3), None, spec)
    torch.library.opcheck(torch.ops.fovea.attend.default, arguments)
    output, lse, weights = torch.ops.fovea.attend(*arguments)
    detached = [x.detach() for x in (output, lse, weights)]
    inputs = (*(x.detach() for x in arguments[:3]), [bias.detach()], *arguments[4:])
    torch.library.opcheck(
        torch.ops.fovea.attend_backward.default,
        (torch.ones_like(detached[0]), None, torch.ones_like(detached[2]), *detached[:2], *inputs, [True] * 4),
    )


def test_seeds_come_from_pytorch():
    q, k, v = qkv(grad=False)

    def call(q, k, v):
        return fovea.attention(q, k, v, dropout=0.5)

    run = compiled(call, backend="aot_eager")
    for f in (call, run):
        torch.manual_seed(3)
        first, second = f(q, k, v), f(q, k, v)
        torch.manual_seed(3)
        assert torch.equal(f(q, k, v), first) and not torch.equal(first, second)
    torch.manual_seed(3)
    assert torch.equal(call(q, k, v), first)


def test_seeds_may_be_given():
    q, k, v = qkv(grad=False)
    before = torch.get_rng_state()
    for seed in (0, 7, 2**64 - 1):

        def call(q, k, v):
            return fovea.attention(q, k, v, dropout=0.5, seed=seed)

        expected = call(q, k, v)
        assert torch.equal(call(q, k, v), expected)
        assert torch.equal(compiled(call, backend="aot_eager")(q, k, v), expected)
    as_tensor = fovea.attention(q, k, v, dropout=0.5, seed=torch.tensor(7))
    assert torch.equal(as_tensor, fovea.attention(q, k, v, dropout=0.5, seed=7))
    fovea.attention(q, k, v)
    assert torch.equal(before, torch.get_rng_state())


def test_dropout_of_a_graph_is_that_of_its_backward():
    q, k, v = qkv()

    def call(q, k, v):
        return fovea.attention(q, k, v, dropout=0.5)

    run = compiled(call, backend="aot_eager")
    found = []
    for f in (run, call):
        torch.manual_seed(1)
        found.append(torch.autograd.grad(f(q, k, v).square().sum(), (q, k, v)))
    assert all(torch.equal(x, y) for x, y in zip(*found))


def test_checkpoints_recompute_the_same():
    from torch.utils.checkpoint import checkpoint

    q, k, v = qkv()
    call = lambda q, k, v: fovea.attention(q, k, v, dropout=0.5)  # noqa: E731
    found = []
    for f in (call, lambda *x: checkpoint(call, *x, use_reentrant=False)):
        torch.manual_seed(1)
        found.append(torch.autograd.grad(f(q, k, v).sum(), (q, k, v)))
    assert all(torch.equal(x, y) for x, y in zip(*found))


def test_unused_log_sum_exp_of_a_graph_costs_no_error():
    """A graph passes zeros as gradients of results that no loss uses."""
    q, k, v = qkv()
    call = lambda q, k, v: fovea.attention(q, k, v, normalizer=fovea.Sparsemax(), return_lse=True)  # noqa: E731
    output, lse = compiled(call, backend="aot_eager")(q, k, v)
    output.sum().backward()
    with pytest.raises(fovea.InvalidArgument, match="log_sum_exp"):
        compiled(call, backend="aot_eager")(q, k, v)[1].sum().backward()


def test_no_second_derivative_in_the_operator():
    q, k, v = qkv()
    spec = "score scaled-dot\nmask everything\nnormalizer softmax\ndropout 0.0\nhidden 0"
    out = torch.ops.fovea.attend(q, k, v, [], [], None, None, None, None, None, None, spec)[0]
    (first,) = torch.autograd.grad(out.square().sum(), q, create_graph=True)
    with pytest.raises(RuntimeError, match="no second derivatives"):
        first.sum().backward()


def test_dispatch_modes_see_the_operator():
    from torch.utils._python_dispatch import TorchDispatchMode

    seen = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(str(func))
            return func(*args, **(kwargs or {}))

    q, k, v = qkv(grad=False)
    with Watch():
        inside = fovea.attention(q, k, v, mask=lambda b, h, i, j: j <= i)
    assert "fovea.attend.default" in seen
    assert torch.equal(inside, fovea.attention(q, k, v, mask=fovea.Causal()))


def test_masks_of_every_step_leave_nothing():
    q, k, v = qkv(grad=False)
    for call in (fovea.attention, compiled(fovea.attention, backend="aot_eager")):
        seen = []
        for step in range(5):
            visible = torch.rand(N, M) > 0.3
            call(q, k, v, mask=visible)
            seen.append(weakref.ref(visible))
            del visible
        gc.collect()
        assert sum(ref() is not None for ref in seen) == 0


def test_float64_stays():
    q, k, v = qkv(grad=False)
    assert compiled(sdpa, backend="aot_eager")(q, k, v).dtype == F64


def test_lengths_as_a_list_that_changes():
    torch._dynamo.reset()
    counter = torch._dynamo.testing.CompileCounterWithBackend("aot_eager")
    call = lambda q, lengths: fovea.attention(q, q, q, mask=fovea.Causal() & fovea.KeyLengths(lengths))  # noqa: E731
    (q,) = tensors((B, H, 16, D))
    graph = torch.compile(call, fullgraph=True, backend=counter)
    for n in range(12):
        assert torch.equal(graph(q, [n + 2, n + 1]), call(q, [n + 2, n + 1]))
    assert counter.frame_count <= 3
