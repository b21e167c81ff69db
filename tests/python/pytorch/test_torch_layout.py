"""The order in memory of the axes of outputs and gradients: a user's `.view` depends on it."""

import itertools
import shutil

import pytest
from torch.nn.functional import scaled_dot_product_attention as theirs
from torch_support import F64, torch

import fovea
import fovea.torch

ours = fovea.torch.scaled_dot_product_attention
BACKENDS = ["aot_eager"] + (["inductor"] if shutil.which("c++") or shutil.which("g++") else [])
# The axes of [batch, heads, length, dim] in their order in memory, outermost first.
ROWS, TRANSPOSED = (0, 1, 2, 3), (0, 2, 1, 3)
ORDERS = [ROWS, TRANSPOSED, (1, 0, 2, 3), (2, 0, 1, 3), (2, 1, 0, 3), (1, 2, 0, 3), (0, 1, 3, 2), (3, 0, 1, 2)]


def lying(shape, order, dtype=F64, grad=False):
    x = torch.randn([shape[axis] for axis in order], dtype=torch.float32).to(dtype)
    return x.permute([order.index(axis) for axis in range(len(order))]).requires_grad_(grad)


def same_strides(x, y):
    """Strides of axes with one element, or of empty tensors, do not count."""
    assert x.shape == y.shape
    return x.numel() == 0 or all(a == b for a, b, n in zip(x.stride(), y.stride(), x.shape) if n > 1)


def lies_as_pytorchs(q, k, v, **options):
    expected = theirs(q, k, v, **options)
    with fovea.torch.patched():
        patched = theirs(q, k, v, **options)
    for found in (ours(q, k, v, **options), patched):
        assert same_strides(found, expected), (q.stride(), found.stride(), expected.stride())
        if not options.get("dropout_p"):
            assert torch.allclose(found.double(), expected.double(), atol=2e-2)
    return expected


def masks(*lead, rows, keys):
    yield {}
    for shape in {(rows, keys), (1, keys), (lead[-1], rows, keys), (1, rows, keys), (*lead, rows, keys)}:
        yield {"attn_mask": torch.zeros(shape, dtype=F64)}
    yield {"attn_mask": torch.ones(rows, keys, dtype=torch.bool)}
    yield {"attn_mask": torch.zeros(rows, keys, dtype=F64, requires_grad=True)}


@pytest.mark.parametrize("order", ORDERS, ids=str)
@pytest.mark.parametrize("grad", [False, True])
def test_four_axes(order, grad):
    heads = [(4, 4, 4), (4, 2, 2), (4, 1, 1), (1, 1, 1), (1, 3, 3), (4, 1, 4)]
    widths = [(8, 8), (8, 6)]
    followed = 0
    for (h, g, e), (n, m), (d, w) in itertools.product(heads, [(5, 7), (1, 7)], widths):
        q, k, v = (lying(shape, order, grad=grad) for shape in ((2, h, n, d), (2, g, m, d), (2, e, m, w)))
        grouped = h != 1 and g == e != h
        for options in [*masks(2, h, rows=n, keys=m), {"is_causal": True}, {"dropout_p": 0.1}]:
            y = lies_as_pytorchs(q, k, v, enable_gqa=grouped, **options)
            followed += not y.is_contiguous()
    assert (followed > 10) == (order not in (ROWS, (0, 1, 3, 2), (3, 0, 1, 2)))


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2), (0, 2, 1)], ids=str)
def test_three_axes(order):
    for (h, g), (n, m), (d, w) in itertools.product([(4, 4), (4, 2), (1, 1)], [(5, 7), (1, 7)], [(8, 8), (8, 6)]):
        q, k, v = (lying(shape, order) for shape in ((h, n, d), (g, m, d), (g, m, w)))
        for options in [*masks(h, rows=n, keys=m), {"is_causal": True}, {"dropout_p": 0.1}]:
            lies_as_pytorchs(q, k, v, enable_gqa=h != g, **options)


def test_other_axes_and_broadcasts():
    q, k, v = (lying((2, 4, 5, 8), TRANSPOSED) for _ in range(3))
    one = lying((1, 4, 5, 8), TRANSPOSED)
    for given in [(one, k, v), (q, one, one), (q, k, one), (q[0], k, v), (q, k[0], v[0]), (one.expand_as(q), k, v)]:
        lies_as_pytorchs(*given)
    lies_as_pytorchs(one[:, :1].expand_as(q), k, v)
    lies_as_pytorchs(q[0, 0], k[0, 0], v[0, 0])
    lies_as_pytorchs(q[:, :, ::2], k, v)
    lies_as_pytorchs(q, k, v[..., :1].expand_as(q))
    lies_as_pytorchs(q[..., :7], k[..., :7], v[..., :7])
    for order in [(0, 1, 2, 3, 4), (0, 1, 3, 2, 4), (0, 3, 1, 2, 4)]:
        lies_as_pytorchs(*(lying((2, 2, 3, 5, 8), order) for _ in range(3)))
    packed = torch.randn(2, 5, 3 * 4 * 8, dtype=F64, requires_grad=True)
    lies_as_pytorchs(*(x.view(2, 5, 4, 8).transpose(1, 2) for x in packed.split(32, -1)))
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        lies_as_pytorchs(q, k, v)
    lies_as_pytorchs(q, k, v, attn_mask=torch.nn.attention.bias.causal_upper_left(5, 5))
    lies_as_pytorchs(q[:0], k[:0], v[:0])
    assert ours(q[:0], k[:0], v[:0]).transpose(1, 2).view(0, 5, 32).shape == (0, 5, 32)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_dtypes(dtype):
    q, k, v = (lying((2, 4, 5, 8), TRANSPOSED, dtype) for _ in range(3))
    assert not lies_as_pytorchs(q, k, v).is_contiguous()
    lies_as_pytorchs(q, k, v, dropout_p=0.1)
    with torch.autocast("cpu", torch.bfloat16):
        lies_as_pytorchs(q.float(), k.float(), v.float())


class OfTheTutorial(torch.nn.Module):
    """The attention of PyTorch's tutorial on scaled_dot_product_attention, with its own line: without .contiguous()."""

    def __init__(self):
        super().__init__()
        self.packed = torch.nn.Linear(12, 36, dtype=F64)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (y.view(batch, length, 3, 4).transpose(1, 2) for y in self.packed(x).chunk(3, -1))
        y = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return y.transpose(1, 2).view(batch, -1, width)


@pytest.mark.parametrize("backend", [None, *BACKENDS])
@pytest.mark.parametrize("dynamic", [False, True])
def test_the_view_of_pytorchs_tutorial(backend, dynamic):
    torch._dynamo.reset()
    model = OfTheTutorial()
    run = model if backend is None else torch.compile(model, fullgraph=True, backend=backend, dynamic=dynamic)
    for length in (6, 9):
        x = torch.randn(2, length, 12, dtype=F64, requires_grad=True)
        expected = model(x)
        wanted = torch.autograd.grad(expected.square().sum(), [x, *model.parameters()])
        with fovea.torch.patched():
            found = run(x)
            grads = torch.autograd.grad(found.square().sum(), [x, *model.parameters()])
        assert torch.allclose(found, expected, atol=1e-13)
        assert all(torch.allclose(a, b, atol=1e-12) for a, b in zip(grads, wanted))


def inputs_of(order, dtype=F64, grad=False, heads=(4, 4), width=8):
    shapes = ((2, heads[0], 5, 8), (2, heads[1], 7, 8), (2, heads[1], 7, width))
    return [lying(shape, order, dtype, grad) for shape in shapes]


SPECS = {
    "plain": {},
    "dropout": {"dropout": 0.3, "seed": 1},
    "sparse": {"normalizer": fovea.Sparsemax()},
    "all three": {"return_lse": True, "return_weights": True},
}


def outermost_first(x):
    """All axes except the innermost, in their order in memory."""
    return sorted(range(x.dim() - 1), key=lambda axis: -x.stride(axis))


@pytest.mark.parametrize("dtype", [F64, torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_attention_follows_the_query(order, name, dtype):
    for grad, heads, width in itertools.product((False, True), [(4, 4), (4, 2)], [8, 6]):
        q, k, v = inputs_of(order, dtype, grad, heads, width)
        out = fovea.attention(q, k, v, **SPECS[name])
        expected = fovea.attention(*(x.contiguous() for x in (q, k, v)), **SPECS[name])
        out, expected = (x[0] if isinstance(x, tuple) else x for x in (out, expected))
        assert torch.equal(out, expected) and out.stride(-1) == 1
        assert outermost_first(out) == (outermost_first(q) if q.stride(-1) == 1 else [0, 1, 2])
        assert out.numel() == sum((n - 1) * s for n, s in zip(out.shape, out.stride())) + 1


def with_gaps(x):
    return x.repeat_interleave(2, 2)[:, :, ::2]


@pytest.mark.parametrize("order", ORDERS, ids=str)
def test_gradients_have_the_order_of_their_tensors(order):
    for change in (lambda x: x, with_gaps, lambda x: x[:, :1].expand_as(x)):
        q, k, v = (change(x).detach().requires_grad_() for x in inputs_of(order))
        out = fovea.attention(q, k, v)
        (weight,) = (torch.randn_like(out),)
        grads = torch.autograd.grad(out, (q, k, v), weight)
        plain = [x.detach().contiguous().requires_grad_() for x in (q, k, v)]
        wanted = torch.autograd.grad(fovea.attention(*plain), plain, weight.contiguous())
        for x, found, expected in zip((q, k, v), grads, wanted):
            assert torch.equal(found, expected)
            like = torch.empty_like(x) if x.stride(-1) == 1 else torch.empty(x.shape, dtype=x.dtype)
            assert found.stride() == like.stride()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dynamic", [False, True])
def test_graphs_have_the_right_strides(backend, dynamic):
    """A graph is built on the strides of the operator's fake results: wrong strides give wrong numbers, or an error."""
    calls = [
        lambda q, k, v: fovea.attention(q, k, v, return_lse=True)[0],
        lambda q, k, v: ours(q, k, v, enable_gqa=True),
        lambda q, k, v: ours(q, k, v, attn_mask=torch.zeros(1, 1, q.shape[2], k.shape[2], dtype=F64), enable_gqa=True),
    ]
    cases = list(itertools.product(calls, [((4, 4), 8), ((4, 2), 6)], ORDERS[1:3] + ORDERS[-1:]))
    # Inductor takes about ten seconds for a graph with gradients: so there is one graph for each call, each with other heads and orders.
    for call, (heads, width), order in cases[::7] if backend == "inductor" else cases:
        torch._dynamo.reset()
        run = torch.compile(call, fullgraph=True, backend=backend, dynamic=dynamic)
        for grad in (False, True):
            q, k, v = inputs_of(order, grad=grad, heads=heads, width=width)
            found, expected = run(q, k, v), call(q, k, v)
            assert torch.allclose(found, expected, atol=1e-14) and same_strides(found, expected)
            if grad:
                pairs = [torch.autograd.grad(y.square().sum(), (q, k, v)) for y in (found, expected)]
                assert all(torch.allclose(x, y, atol=1e-13) for x, y in zip(*pairs))


# Each check of an operator traces it again, which takes a second or two: so there are two orders, and all changes are in one of them.
@pytest.mark.parametrize("order", ORDERS[:2], ids=str)
@pytest.mark.parametrize("line", ["", "\nrow_major 1"])
@pytest.mark.parametrize("width", [8, 6])
def test_fake_results_have_the_strides_of_real_ones(order, line, width):
    spec = "score scaled-dot\nmask everything\nnormalizer softmax\ndropout 0.0\nhidden 0" + line
    changes = (lambda x: x, with_gaps, lambda x: x[:, :1].expand_as(x), lambda x: x[:, :, :1])
    for change in changes if order == ORDERS[1] else changes[:1]:
        inputs = [change(x).detach().requires_grad_() for x in inputs_of(order, width=width)]
        arguments = (*inputs, [], [], None, None, None, None, None, None, spec)
        torch.library.opcheck(torch.ops.fovea.attend.default, arguments)
        with torch.no_grad():
            output, lse, _ = torch.ops.fovea.attend(*arguments)
        assert (line != "") <= output.is_contiguous()
        losses = (torch.ones_like(output), torch.ones_like(lse), None)
        plain = (*(x.detach() for x in inputs), *arguments[3:])
        for given in (losses, (None, losses[1], None)):
            torch.library.opcheck(
                torch.ops.fovea.attend_backward.default, (*given, output, lse, *plain, [True] * 3)
            )
