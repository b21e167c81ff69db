"""Batches of gradients and the transforms of torch.func over attention and rotation."""

import pytest
from torch_support import F64, plain, tensors, torch

import fovea
import fovea.torch

B, H, G, N, M, D = 2, 4, 2, 3, 5, 4
vmap, grad = torch.func.vmap, torch.func.grad


def qkv(wants=True):
    return tensors((B, H, N, D), (B, G, M, D), (B, G, M, D), grad=wants)


def everything(q, k, v, slope, sink):
    visible = torch.ones(N, M, dtype=torch.bool).tril(2)
    return fovea.attention(
        q,
        k,
        v,
        mods=[fovea.SoftCap(5.0), fovea.AlibiBias(slope)],
        mask=fovea.ArrayMask(visible) & fovea.KeyLengths([5, 4]) & fovea.Predicate(lambda b, h, i, j: i - j < 4),
        normalizer=fovea.SoftmaxWithSink(sink),
        dropout=0.3,
        seed=2**64 - 3,
        return_lse=True,
        return_weights=True,
    )


def three(wants=True):
    return [*qkv(wants), *tensors((H,), (H,), grad=wants, seed=1)]


@pytest.mark.parametrize("batched", ["is_grads_batched", "torch.func.vmap"])
def test_batches_of_gradients(batched):
    arrays = three()
    outputs = everything(*arrays)
    along = [torch.randn(3, *x.shape, dtype=F64, generator=torch.Generator().manual_seed(2)) for x in outputs]

    def one(*losses):
        return torch.autograd.grad(outputs, arrays, losses, retain_graph=True)

    expected = [torch.stack(parts) for parts in zip(*(one(*(x[i] for x in along)) for i in range(3)))]
    if batched == "is_grads_batched":
        found = torch.autograd.grad(outputs, arrays, along, retain_graph=True, is_grads_batched=True)
    else:
        found = vmap(one)(*along)
    assert all(torch.equal(x, y) for x, y in zip(found, expected))
    # One output alone, one tensor alone.
    for output, x in ((outputs[0], arrays[2]), (outputs[1], arrays[0]), (outputs[2], arrays[1])):
        along = torch.eye(output.numel(), dtype=F64).reshape(-1, *output.shape)[:4]
        (found,) = torch.autograd.grad(output, x, along, retain_graph=True, is_grads_batched=True)
        each = [torch.autograd.grad(output, x, row, retain_graph=True)[0] for row in along]
        assert torch.equal(found, torch.stack(each))


@pytest.mark.parametrize("call", [fovea.attention, fovea.torch.scaled_dot_product_attention], ids=["own", "sdpa"])
def test_vectorized_jacobians(call):
    jacobian = torch.autograd.functional.jacobian
    q, k, v = tensors((2, 2, N, D), (2, 2, M, D), (2, 2, M, D))
    expected = jacobian(call, (q, k, v))
    found = jacobian(call, (q, k, v), vectorize=True)
    assert all(torch.equal(x, y) for x, y in zip(found, expected))
    by_func = torch.func.jacrev(call, (0, 1, 2))(q, k, v)
    assert all(torch.allclose(x, y, atol=1e-14) for x, y in zip(by_func, expected))
    in_chunks = torch.func.jacrev(call, (0, 1, 2), chunk_size=5)(q, k, v)
    assert all(torch.allclose(x, y, atol=1e-14) for x, y in zip(in_chunks, expected))


def test_vectorized_jacobian_under_patched():
    (q,) = tensors((1, 2, 3, 4))
    call = lambda x: torch.nn.functional.scaled_dot_product_attention(x, x, x)  # noqa: E731
    expected = torch.autograd.functional.jacobian(call, q)
    with fovea.torch.patched():
        found = torch.autograd.functional.jacobian(call, q, vectorize=True)
    assert torch.allclose(found, expected, atol=1e-13)


def test_batches_through_the_operator():
    """The tape has the operator after a graph or a dispatch mode."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    q, k, v = qkv()
    expected = fovea.attention(q, k, v)
    with Watch():
        found = fovea.attention(q, k, v)
    along = torch.randn(3, *found.shape, dtype=F64)
    grads = [torch.autograd.grad(y, (q, k, v), along, is_grads_batched=True) for y in (found, expected)]
    assert all(torch.equal(x, y) for x, y in zip(*grads))


def test_func_grad_and_vjp():
    arrays = three(False)
    loss = lambda *x: sum(y[y.isfinite()].sum() for y in everything(*x))  # noqa: E731
    leaves = three()
    wanted = torch.autograd.grad(loss(*leaves), leaves)
    found = grad(loss, argnums=tuple(range(5)))(*arrays)
    assert all(torch.allclose(x, y, atol=1e-14) for x, y in zip(found, wanted))
    outputs, pull = torch.func.vjp(everything, *arrays)
    assert all(torch.equal(x, y) for x, y in zip(outputs, everything(*arrays)))
    wanted = torch.autograd.grad(everything(*leaves)[0].sum(), leaves)
    zeros = [torch.ones_like(outputs[0]), torch.zeros_like(outputs[1]), torch.zeros_like(outputs[2])]
    assert all(torch.allclose(x, y, atol=1e-14) for x, y in zip(pull(tuple(zeros)), wanted))


def test_vmap():
    q, k, v = tensors((3, B, H, N, D), (B, G, 3, M, D), (B, G, M, D))
    (slopes,) = tensors((3, H))
    visible = torch.rand(3, N, M) > 0.4

    def call(q, k, slope, visible):
        return fovea.attention(q, k, v, mods=[fovea.AlibiBias(slope)], mask=visible, return_lse=True)

    found = vmap(call, in_dims=(0, 2, 0, 0))(q, k, slopes, visible)
    each = [call(q[i], k[:, :, i], slopes[i], visible[i]) for i in range(3)]
    assert all(torch.equal(x, torch.stack(y)) for x, y in zip(found, zip(*each)))
    nested = vmap(vmap(lambda q: fovea.attention(q, k[:, :, 0], v), 1, 1))(q[:, :, None])
    assert torch.equal(nested[:, :, 0], torch.stack([fovea.attention(x, k[:, :, 0], v) for x in q]))
    sdpa = vmap(lambda q: fovea.torch.scaled_dot_product_attention(q, k[:, :, 0], v, enable_gqa=True))(q)
    assert torch.allclose(sdpa, nested[:, :, 0], atol=1e-14)


def test_gradients_of_each_sample():
    """vmap over grad, and gradients of results of vmap."""
    q, k, v = qkv(False)
    loss = lambda q, k, v: fovea.attention(q[None], k[None], v[None]).square().sum()  # noqa: E731
    found = vmap(grad(loss, (0, 1, 2)))(q, k, v)
    expected = [torch.stack(parts) for parts in zip(*(grad(loss, (0, 1, 2))(*x) for x in zip(q, k, v)))]
    assert all(torch.equal(x, y) for x, y in zip(found, expected))
    leaves = qkv()
    total = vmap(loss)(*leaves).sum()
    assert all(torch.allclose(x, y, atol=1e-14) for x, y in zip(torch.autograd.grad(total, leaves), expected))
    total = grad(lambda q: vmap(loss)(q, k, v).sum())(q)
    assert torch.allclose(total, expected[0], atol=1e-14)


def test_vmap_draws_by_its_randomness_option():
    q, k, v = qkv(False)
    call = lambda q: fovea.attention(q, k, v, dropout=0.5)  # noqa: E731
    many = q.expand(3, -1, -1, -1, -1)
    with pytest.raises(RuntimeError, match="randomness"):
        vmap(call)(many)
    same, other = (vmap(call, randomness=kind)(many) for kind in ("same", "different"))
    assert torch.equal(same[0], same[1]) and not torch.equal(other[0], other[1])


def test_other_transforms_are_refused_by_name():
    q, k, v = qkv(False)
    call = lambda q: fovea.attention(q, k, v)  # noqa: E731
    total = lambda q: call(q).square().sum()  # noqa: E731
    for transformed in (
        lambda: torch.func.jvp(call, (q,), (q,)),
        lambda: torch.func.jacfwd(call)(q),
        lambda: torch.func.hessian(total)(q),
        lambda: vmap(lambda x: torch.func.jvp(call, (x,), (x,)))(q[None]),
    ):
        with pytest.raises(fovea.InvalidArgument, match="torch.func .*jacrev"):
            transformed()
    with pytest.raises(RuntimeError, match="no second derivatives"):
        grad(lambda q: grad(total)(q).sum())(q)
    with pytest.raises(fovea.InvalidArgument, match="torch.func"):
        grad(lambda q: fovea.torch.score_function(q, k, v, torch.zeros(B, H, N), seed=1))(q)
    with pytest.raises(fovea.InvalidArgument, match="forward-mode"):
        torch.autograd.functional.jacobian(call, q, strategy="forward-mode", vectorize=True)


def test_no_second_derivative_of_a_batch():
    q, k, v = qkv()
    out = fovea.attention(q, k, v).square()
    along = torch.randn(2, *out.shape, dtype=F64)
    (first,) = torch.autograd.grad(out, q, along, is_grads_batched=True, create_graph=True)
    with pytest.raises(RuntimeError, match="no second derivatives"):
        first.sum().backward()


def test_the_score_function_in_batches():
    q, k, v = qkv()
    loss = fovea.torch.score_function(q, k, v, torch.rand(B, H, N, dtype=F64), seed=1)
    (expected,) = torch.autograd.grad(loss, q, retain_graph=True)
    (found,) = torch.autograd.grad(loss, q, torch.tensor([1.0, -2.0], dtype=loss.dtype), is_grads_batched=True)
    assert torch.allclose(found, torch.stack([expected, -2 * expected]), atol=1e-14)


def test_rotation():
    rope = fovea.Rope(D)
    call = lambda x: fovea.rotate(x, rope)  # noqa: E731
    (x,) = tensors((2, 3, D))
    x = x[None]
    expected = torch.autograd.functional.jacobian(call, x)
    assert torch.equal(torch.autograd.functional.jacobian(call, x, vectorize=True), expected)
    assert torch.equal(torch.func.jacrev(call)(x), expected)
    many = torch.randn(3, *x.shape, dtype=F64)
    assert torch.equal(vmap(call)(many), torch.stack([call(one) for one in many]))
    found = vmap(grad(lambda x: call(x)[..., 0].sum()))(many)
    assert torch.equal(found[1], expected[..., 0, :, :, :, :].sum((0, 1, 2)).reshape(x.shape))


def test_plain_attention_under_the_same_transforms():
    """An outside oracle: attention written out in PyTorch operations, which PyTorch transforms itself."""
    q, k, v = tensors((3, 1, H, N, D), (3, 1, G, M, D), (3, 1, G, M, D))
    ours = lambda q, k, v: fovea.attention(q, k, v).square().sum()  # noqa: E731
    theirs = lambda q, k, v: plain(q, k, v)[0].square().sum()  # noqa: E731
    for x, y in zip(*(vmap(grad(f, (0, 1, 2)))(q, k, v) for f in (ours, theirs))):
        assert torch.allclose(x, y, atol=1e-12)
