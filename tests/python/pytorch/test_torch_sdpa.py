"""`fovea.torch.scaled_dot_product_attention` beside PyTorch's, and used in models."""

import itertools
import threading

import pytest
from torch_support import F64, bound, math_sdpa, tensors, torch
from torch_support import theirs as imported_before

import fovea
import fovea.torch

ours = fovea.torch.scaled_dot_product_attention

LAYOUTS = [  # query, key, value
    ((5, 8), (7, 8), (7, 6)),
    ((3, 5, 8), (3, 7, 8), (3, 7, 6)),
    ((2, 3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 6)),
    ((2, 2, 3, 5, 8), (2, 2, 3, 7, 8), (2, 2, 3, 7, 6)),
    ((2, 3, 5, 8), (1, 3, 7, 8), (2, 1, 7, 6)),
    ((2, 1, 5, 8), (2, 3, 7, 8), (2, 3, 7, 6)),
    ((3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 6)),
    ((2, 1, 3, 5, 8), (1, 4, 3, 7, 8), (2, 4, 1, 7, 6)),
    ((2, 3, 1, 8), (2, 3, 1, 8), (2, 3, 1, 6)),
    ((2, 3, 7, 8), (2, 3, 5, 8), (2, 3, 5, 6)),
    ((0, 3, 5, 8), (0, 3, 7, 8), (0, 3, 7, 6)),
    ((2, 3, 0, 8), (2, 3, 7, 8), (2, 3, 7, 6)),
]


def compared(shapes, grouped=False, **options):
    q, k, v = tensors(*shapes, grad=True)
    mask = options.get("attn_mask")
    found = ours(q, k, v, enable_gqa=grouped, **options)
    expected = math_sdpa(q, k, v, enable_gqa=grouped, **options)
    assert found.shape == expected.shape and found.dtype == expected.dtype
    assert torch.allclose(found, expected, atol=1e-13)
    arrays = [q, k, v] + ([mask] if mask is not None and mask.requires_grad else [])
    (weight,) = tensors(found.shape, seed=3)
    grads = [torch.autograd.grad(x, arrays, weight) for x in (found, expected)]
    for x, y in zip(*grads):
        assert x.shape == y.shape and torch.allclose(x, y, atol=1e-12)


@pytest.mark.parametrize("shapes", LAYOUTS, ids=str)
def test_layouts(shapes):
    compared(shapes)
    compared(shapes, is_causal=True)
    compared(shapes, scale=0.3)


@pytest.mark.parametrize("shapes", LAYOUTS[:-2], ids=str)
def test_masks(shapes):
    lead = torch.broadcast_shapes(*(shape[:-2] for shape in shapes))
    full = (*lead, shapes[0][-2], shapes[1][-2])
    generator = torch.Generator().manual_seed(0)
    for kept in itertools.product((False, True), repeat=len(full)):
        shape = tuple(n if keep else 1 for n, keep in zip(full, kept))
        for axes in range(2, len(shape) + 1):
            if any(n != 1 for n in shape[:-axes]):
                continue
            visible = torch.rand(shape[-axes:], generator=generator) > 0.3
            visible[..., 0] = True
            compared(shapes, attn_mask=visible)
            numbers = torch.randn(shape[-axes:], dtype=F64, generator=generator)
            compared(shapes, attn_mask=numbers.requires_grad_())


def test_grouped_heads():
    for lead in [(), (2,), (2, 3)]:
        for kv in (1, 2, 4):
            shapes = ((*lead, 4, 5, 8), (*lead, kv, 7, 8), (*lead, kv, 7, 6))
            compared(shapes, grouped=True)
            compared(shapes, grouped=True, is_causal=True)
            compared(shapes, grouped=True, attn_mask=torch.ones(5, 7, dtype=torch.bool).tril(2))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_dtypes(dtype):
    q, k, v, mask = tensors((2, 3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 8), (5, 7), dtype=dtype)
    found = ours(q, k, v, mask)
    expected = math_sdpa(q.double(), k.double(), v.double(), mask.double())
    assert found.dtype == dtype and (found - expected).abs().max() <= bound(q, k, v, 4.0)
    with torch.autocast("cpu", torch.bfloat16):
        assert ours(q.float(), k.float(), v.float()).dtype == torch.bfloat16


def test_rows_that_see_nothing_are_zero():
    q, k, v = tensors((1, 2, 3, 8), (1, 2, 4, 8), (1, 2, 4, 8), grad=True)
    visible = torch.tensor([[True] * 4, [False] * 4, [True] * 4])
    for mask in (visible, torch.zeros(3, 4, dtype=F64).masked_fill(~visible, -torch.inf)):
        out = ours(q, k, v, mask)
        assert out[:, :, 1].abs().max() == 0 and torch.allclose(
            out[:, :, ::2], math_sdpa(q, k, v, visible)[:, :, ::2]
        )
        grads = torch.autograd.grad(out.sum(), (q, k, v))
        assert all(x.isfinite().all() for x in grads) and grads[0][:, :, 1].abs().max() == 0


def test_dropout_keeps_the_mean_and_pytorchs_seed():
    q, k, v = tensors((1, 2, 3, 8), (1, 2, 400, 8), (1, 2, 400, 8))
    torch.manual_seed(0)
    found = torch.stack([ours(q, k, v, dropout_p=0.25) for _ in range(300)])
    error = found.std(0) / 300**0.5
    assert ((found.mean(0) - ours(q, k, v)).abs() <= 5 * error).all()
    torch.manual_seed(0)
    assert torch.equal(ours(q, k, v, dropout_p=0.25), found[0])


REFUSED = {
    "a mask and causal": (dict(attn_mask=torch.ones(5, 7, dtype=torch.bool), is_causal=True), "is_causal"),
    "heads that differ": (dict(key=torch.zeros(2, 2, 7, 8, dtype=F64)), "key"),
    "dims that differ": (dict(key=torch.zeros(2, 4, 7, 9, dtype=F64)), "key"),
    "lengths that differ": (dict(value=torch.zeros(2, 4, 6, 9, dtype=F64)), "value"),
    "another dtype": (dict(value=torch.zeros(2, 4, 7, 8)), "value"),
    "whole numbers": (dict(query=torch.zeros(2, 4, 5, 8, dtype=torch.int64)), "query"),
    "one axis": (dict(query=torch.zeros(8, dtype=F64)), "query"),
    "a list": (dict(query=[1.0]), "query"),
    "another device": (dict(query=torch.zeros(2, 4, 5, 8, device="meta")), "query"),
    "sparse": (dict(value=torch.zeros(2, 4, 7, 8, dtype=F64).to_sparse()), "value"),
    "a mask that does not fit": (dict(attn_mask=torch.ones(4, 7, dtype=torch.bool)), "attn_mask"),
    "a mask of numbers that do not count": (dict(attn_mask=torch.ones(5, 7, dtype=torch.int32)), "attn_mask"),
    "a rate of 1.5": (dict(dropout_p=1.5), "dropout_p"),
    "groups that do not divide": (
        dict(key=torch.zeros(2, 3, 7, 8, dtype=F64), value=torch.zeros(2, 3, 7, 8, dtype=F64), enable_gqa=True),
        "key",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_name_the_argument(name):
    changed, argument = REFUSED[name]
    q, k, v = tensors((2, 4, 5, 8), (2, 4, 7, 8), (2, 4, 7, 8))
    with pytest.raises(fovea.InvalidArgument) as caught:
        ours(**{"query": q, "key": k, "value": v, **changed})
    assert caught.value.argument == argument
    assert caught.value.function == "scaled_dot_product_attention"


ATTENTION_REFUSED = {
    "a list for key": (dict(key=[[1.0]]), "key"),
    "NumPy beside a tensor": (dict(key=torch.zeros(2, 4, 7, 8).numpy()), "key"),
    "another dtype": (dict(value=torch.zeros(2, 4, 7, 8)), "value"),
    "three axes": (dict(query=torch.zeros(4, 5, 8, dtype=F64)), "query"),
    "meta": (dict(query=torch.zeros(2, 4, 5, 8, device="meta", dtype=F64)), "query"),
    "a parameter elsewhere": (dict(mods=[fovea.AlibiBias(torch.zeros(4, device="meta"))]), "mods[0].slope"),
    "sparse": (dict(value=torch.zeros(2, 4, 7, 8, dtype=F64).to_sparse()), "value"),
    "complex": (dict(query=torch.zeros(2, 4, 5, 8, dtype=torch.complex64)), "query"),
    "other heads": (dict(key=torch.zeros(2, 3, 7, 8, dtype=F64)), None),
    "a mask of another size": (dict(mask=torch.zeros(6, 7, dtype=torch.bool)), "mask"),
    "a seed below 0": (dict(dropout=0.5, seed=-1), "seed"),
    "a seed of half": (dict(dropout=0.5, seed=torch.tensor(0.5)), "seed"),
    "slopes of another size": (dict(mods=[fovea.AlibiBias(torch.zeros(3))]), None),
    "out, and gradients": (
        dict(query=torch.zeros(2, 4, 5, 8, dtype=F64, requires_grad=True), out=torch.zeros(2, 4, 5, 8, dtype=F64)),
        "out",
    ),
}


@pytest.mark.parametrize("name", ATTENTION_REFUSED)
def test_refusals_of_attention(name):
    changed, argument = ATTENTION_REFUSED[name]
    q, k, v = tensors((2, 4, 5, 8), (2, 4, 7, 8), (2, 4, 7, 8))
    with pytest.raises(fovea.InvalidArgument) as caught:
        fovea.attention(**{"query": q, "key": k, "value": v, **changed})
    assert argument is None or caught.value.argument == argument


def test_out_is_written_to():
    q, k, v = tensors((2, 4, 5, 8), (2, 4, 7, 8), (2, 4, 7, 8))
    out = torch.empty(2, 5, 4, 8, dtype=F64).transpose(1, 2)
    assert fovea.attention(q, k, v, out=out) is out
    assert torch.equal(out, fovea.attention(q, k, v))


def test_patched_catches_every_name_and_ends():
    q, k, v = tensors((2, 4, 5, 8), (2, 4, 7, 8), (2, 4, 7, 8))
    visible = torch.ones(5, 7, dtype=torch.bool)
    visible[2] = False
    names = [
        torch.nn.functional.scaled_dot_product_attention,
        imported_before,
        lambda *args, **kwargs: torch._C._nn.scaled_dot_product_attention(*args, **kwargs),
    ]
    expected = ours(q, k, v, visible, scale=0.7)

    def served(f):
        return torch.equal(f(q, k, v, visible, 0.0, False, scale=0.7), expected)

    assert not all(map(served, names)) or not torch.equal(math_sdpa(q, k, v, visible, scale=0.7), expected)
    calls = []
    from fovea.torch import _sdpa

    run = _sdpa.run
    _sdpa.run = lambda *args: calls.append(1) or run(*args)
    try:
        with fovea.torch.patched():
            assert all(map(served, names)) and len(calls) == 3
            with fovea.torch.patched():
                assert served(imported_before) and len(calls) == 4
            assert served(imported_before) and len(calls) == 5
        imported_before(q, k, v)
        with pytest.raises(KeyError), fovea.torch.patched():
            raise KeyError
        imported_before(q, k, v)
        assert len(calls) == 5
        with fovea.torch.patched():
            other = threading.Thread(target=lambda: imported_before(q, k, v))
            other.start()
            other.join()
        assert len(calls) == 5
    finally:
        _sdpa.run = run


def test_patched_leaves_the_rest_to_pytorch():
    q, k, v = tensors((2, 4, 5, 8), (2, 4, 7, 8), (2, 4, 7, 8))
    with fovea.torch.patched():
        meta = imported_before(q.to("meta"), k.to("meta"), v.to("meta"))
        assert meta.device.type == "meta"
        with pytest.raises(RuntimeError) as inside:
            imported_before(q, k[..., :3], v)
        with pytest.raises(RuntimeError, match="is_causal"):
            imported_before(q, k, v, torch.ones(5, 7, dtype=torch.bool), is_causal=True)
    with pytest.raises(RuntimeError) as outside:
        imported_before(q, k[..., :3], v)
    assert str(inside.value) == str(outside.value)


def test_threads_call_at_once():
    """All threads get the same results, and the interpreter runs meanwhile."""
    q, k, v = tensors((2, 8, 256, 64), (2, 8, 256, 64), (2, 8, 256, 64), dtype=torch.float32)
    expected = ours(q, k, v, is_causal=True)
    grads = []
    wrong = []

    def work(n):
        x = q.clone().requires_grad_()
        for _ in range(5):
            if not torch.equal(ours(q, k, v, is_causal=True), expected):
                wrong.append(n)
        ours(x, k, v).sum().backward()
        grads.append(x.grad)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong and all(torch.equal(grads[0], x) for x in grads)


def test_the_interpreter_lock_is_released():
    q, k, v = tensors((1, 4, 2048, 64), (1, 4, 2048, 64), (1, 4, 2048, 64), dtype=torch.float32)
    began, ended, ticks = threading.Event(), threading.Event(), []

    def work():
        began.set()
        ours(q, k, v)
        ended.set()

    thread = threading.Thread(target=work)
    thread.start()
    began.wait()
    while not ended.wait(0.001):
        ticks.append(1)
    thread.join()
    assert len(ticks) >= 3


class OfSomebody(torch.Tensor):
    pass


@pytest.mark.filterwarnings("ignore:Lower right")
@pytest.mark.parametrize("make", ["causal_upper_left", "causal_lower_right"])
@pytest.mark.parametrize("lengths", [(6, 8), (8, 6), (7, 7)], ids=str)
def test_causal_biases_of_pytorch(make, lengths):
    """Tensors without memory of their own: their values must not be read from memory."""
    n, m = lengths
    bias = getattr(torch.nn.attention.bias, make)(n, m)
    q, k, v = tensors((2, 4, n, 8), (2, 4, m, 8), (2, 4, m, 8))
    expected = math_sdpa(q, k, v, bias._materialize()).nan_to_num()
    found = [ours(q, k, v, bias), fovea.attention(q, k, v, mask=bias)]
    found.append(fovea.attention(q, k, v, mask=bias, query_offset=3))
    with fovea.torch.patched():
        found.append(imported_before(q, k, v, attn_mask=bias))
    assert all(torch.allclose(x, expected, atol=1e-13) for x in found)
    with pytest.raises(fovea.InvalidArgument, match="attn_mask"):
        ours(q, k[:, :, :-1], v[:, :, :-1], bias)


def test_subclasses_of_tensors_are_refused():
    q, k, v = tensors((2, 4, 5, 8), (2, 4, 7, 8), (2, 4, 7, 8))
    other = torch.zeros(5, 7, dtype=F64).as_subclass(OfSomebody)
    for call in (lambda: ours(q, k, v, other), lambda: fovea.attention(q, k, v, mask=other)):
        with pytest.raises(fovea.InvalidArgument, match="mask: .* got a OfSomebody"):
            call()
    for call in (ours, fovea.attention):
        with pytest.raises(fovea.InvalidArgument, match="key: .* got a OfSomebody"):
            call(q, k.as_subclass(OfSomebody), v)
    with fovea.torch.patched():
        found = imported_before(q, k, v, other)
    assert torch.allclose(found.as_subclass(torch.Tensor), math_sdpa(q, k, v), atol=1e-13)
    assert torch.equal(ours(torch.nn.Parameter(q), k, v), ours(q, k, v))


NOT_SERVED = {
    "head_dim 0": lambda f, q: f(q[..., :0], q[..., :0], q),
    "value_dim 0": lambda f, q: f(q, q, q[..., :0]),
    "no heads": lambda f, q: f(q[:, :0], q[:, :0], q[:, :0]),
    "an infinite scale": lambda f, q: f(q, q, q, scale=float("inf")),
    "a scale of NaN": lambda f, q: f(q, q, q, scale=float("nan")),
    "a scale of text": lambda f, q: f(q, q, q, scale="a"),
    "no rate": lambda f, q: f(q, q, q, dropout_p=None),
    "a tensor for a truth": lambda f, q: f(q, q, q, is_causal=torch.tensor([True, False])),
    "a mask of whole numbers": lambda f, q: f(q, q, q, torch.ones(5, 5, dtype=torch.int32)),
    "a mask of f16": lambda f, q: f(q, q, q, torch.ones(5, 5, dtype=torch.float16)),
    "vmap": lambda f, q: torch.vmap(lambda x: f(x, x, x))(q[None].expand(3, -1, -1, -1, -1)),
    "grad of torch.func": lambda f, q: torch.func.grad(lambda x: f(x, x, x).square().sum())(q),
    "jvp of torch.func": lambda f, q: torch.func.jvp(lambda x: f(x, x, x), (q,), (q,))[1],
}


@pytest.mark.parametrize("name", NOT_SERVED)
def test_patched_passes_unserved_calls_to_pytorch(name):
    (q,) = tensors((2, 4, 5, 8))

    def outcome():
        try:
            with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
                return NOT_SERVED[name](imported_before, q)
        except Exception as error:
            return type(error).__name__ + str(error)

    expected = outcome()
    with fovea.torch.patched():
        found = outcome()
    if isinstance(expected, str):
        assert found == expected
    else:
        assert torch.equal(found.nan_to_num(), expected.nan_to_num())


@pytest.mark.parametrize("name", ["an infinite scale", "a scale of text", "no rate", "a tensor for a truth"])
def test_wrong_numbers_are_refused(name):
    with pytest.raises(fovea.InvalidArgument, match="scale|dropout_p|is_causal"):
        NOT_SERVED[name](ours, *tensors((2, 4, 5, 8)))


def test_forward_mode():
    import torch.autograd.forward_ad as forward

    (q,) = tensors((2, 4, 5, 8))
    for grad in (False, True):
        with forward.dual_level(), torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            dual = forward.make_dual(q.clone().requires_grad_(grad), torch.ones_like(q))
            expected = forward.unpack_dual(imported_before(dual, q, q)).tangent
            with fovea.torch.patched():
                found = forward.unpack_dual(imported_before(dual, q, q)).tangent
            assert torch.equal(found, expected)
            with pytest.raises(fovea.InvalidArgument, match="forward-mode"):
                fovea.attention(dual, q, q)
            with pytest.raises(fovea.InvalidArgument, match="forward-mode"):
                ours(q, q, dual)
            fovea.attention(q, q, q)
