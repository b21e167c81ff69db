"""Calls without arguments take a shorter way to the engine (`fovea.torch._plain_calls`). It gives the bits of the longer
way, and leaves to the longer way whatever it does not serve."""

from __future__ import annotations

import itertools
from unittest import mock

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import fovea
import fovea.torch
from fovea.torch import _plain_calls

LAYOUTS = ("row-major", "transposed", "sliced", "expanded", "inner stride")
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def drawn(layout: str, batch: int, heads: int, length: int, dim: int, dtype: torch.dtype) -> torch.Tensor:
    if layout == "transposed":
        return torch.randn(batch, length, heads, dim, dtype=torch.float64).to(dtype).transpose(1, 2)
    if layout == "sliced":
        return torch.randn(batch, heads, length + 3, dim + 2, dtype=torch.float64).to(dtype)[:, :, 1:-2, 2:]
    if layout == "expanded":
        return torch.randn(1, heads, length, dim, dtype=torch.float64).to(dtype).expand(batch, -1, -1, -1)
    if layout == "inner stride":
        return torch.randn(batch, heads, length, 2 * dim, dtype=torch.float64).to(dtype)[..., ::2]
    return torch.randn(batch, heads, length, dim, dtype=torch.float64).to(dtype)


def longer(call):
    """The same call where the shorter way serves nothing."""
    with mock.patch.object(_plain_calls, "attend", lambda *given: None):
        return call()


def with_gradients(function, tensors, d_output):
    leaves = [x.detach().requires_grad_() for x in tensors]
    output = function(*leaves)
    return [output, *torch.autograd.grad(output, leaves, d_output)]


def strides(x):
    """Those that mean something."""
    return [step for step, size in zip(x.stride(), x.shape) if size > 1]


def assert_same(found, expected):
    for a, b in zip(found, expected, strict=True):
        assert strides(a) == strides(b)
        assert torch.equal(a, b)


FUNCTIONS = {
    "attention": lambda q, k, v: fovea.attention(q, k, v),
    "causal": lambda q, k, v: fovea.attention(q, k, v, mask=fovea.Causal()),
    "sdpa": lambda q, k, v: fovea.torch.scaled_dot_product_attention(q, k, v, enable_gqa=True),
    "sdpa causal": lambda q, k, v: fovea.torch.scaled_dot_product_attention(
        q, k, v, is_causal=True, scale=0.3, enable_gqa=True
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_both_ways_give_the_same_bits(name, layout):
    torch.manual_seed(3)
    function = FUNCTIONS[name]
    for (rows, keys, heads), dtype in itertools.product(((5, 9, 2), (1, 33, 1), (16, 16, 4)), DTYPES):
        q = drawn(layout, 2, 4, rows, 8, dtype)
        k, v = (drawn(layout, 2, heads, keys, 8, dtype) for _ in range(2))
        assert_same([function(q, k, v)], longer(lambda: [function(q, k, v)]))
        d = torch.randn(2, 4, rows, 8).to(dtype)
        for d_output in (d, d.transpose(0, 1).contiguous().transpose(0, 1), d[..., :1].expand_as(d)):
            run = lambda: with_gradients(function, (q, k, v), d_output)  # noqa: E731
            assert_same(run(), longer(run))


def plain_qkv(**options):
    return [torch.randn(1, 2, 4, 8, **options) for _ in range(3)]


def served(call) -> bool:
    """Whether the shorter way gives the result."""
    with mock.patch.object(_plain_calls, "attend", wraps=_plain_calls.attend) as attend:
        results = []
        attend.side_effect = lambda *given: results.append(_ATTEND(*given)) or results[-1]
        call()
    return any(x is not None for x in results)


_ATTEND = _plain_calls.attend


def test_common_calls_are_served():
    q, k, v = plain_qkv()
    assert all(served(lambda: function(q, k, v)) for function in FUNCTIONS.values())
    across = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v)]
    assert served(lambda: fovea.attention(*across))
    assert served(lambda: fovea.attention(torch.nn.Parameter(q), k, v))


def test_a_call_with_any_argument_is_not():
    q, k, v = plain_qkv()
    arguments = {
        "score": fovea.Dot(),
        "mods": (fovea.SoftCap(5.0),),
        "mask": fovea.SlidingWindow(2),
        "normalizer": fovea.Sparsemax(),
        "scale": 0.5,
        "dropout": 0.5,
        "precision": "high",
        "return_lse": True,
        "return_weights": True,
        "query_offset": 3,
        "query_starts": [0, 4],
        "seed": 4,
        "out": torch.empty_like(q),
    }
    for name, value in arguments.items():
        beside = {"key_starts": [0, 4]} if name == "query_starts" else {}
        assert not served(lambda: fovea.attention(q, k, v, **{name: value}, **beside)), name


class Passing(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))


def test_what_a_graph_or_a_mode_must_see_is_not():
    q, k, v = plain_qkv()
    assert not served(lambda: torch.func.vmap(lambda x: fovea.attention(x, k, v))(q[None]))
    assert not served(lambda: torch.func.grad(lambda x: fovea.attention(x, k, v).sum())(q))
    with torch.autocast("cpu", torch.bfloat16):
        assert not served(lambda: fovea.attention(q, k, v))
        assert fovea.attention(q, k, v).dtype == torch.bfloat16
    with Passing():
        assert not served(lambda: fovea.attention(q, k, v))
    with torch.autograd.forward_ad.dual_level(), pytest.raises(fovea.InvalidArgument, match="forward-mode"):
        fovea.attention(torch.autograd.forward_ad.make_dual(q, q), k, v)


def test_memory_that_does_not_hold_the_values_is_not_read():
    tensors = plain_qkv()
    for place in range(3):
        parts = [torch._neg_view(x) if n == place else x for n, x in enumerate(tensors)]
        assert parts[place].is_neg()
        assert_same([fovea.attention(*parts)], [fovea.attention(*(x.resolve_neg() for x in parts))])
    d_output = torch._neg_view(torch.randn(1, 2, 4, 8))
    found = with_gradients(fovea.attention, tensors, d_output)
    assert_same(found, with_gradients(fovea.attention, tensors, d_output.resolve_neg()))


def test_second_derivatives_are_refused_and_partial_gradients_are_given():
    q, k, v = (x.requires_grad_() for x in plain_qkv())
    (d_query,) = torch.autograd.grad(fovea.attention(q, k, v).sum(), q, create_graph=True)
    with pytest.raises(RuntimeError, match="second derivative"):
        d_query.sum().backward()
    d_output = torch.randn(1, 2, 4, 8)
    output = fovea.attention(q.detach(), k, v)
    assert served(lambda: fovea.attention(q.detach(), k, v))
    expected = torch.autograd.grad(fovea.attention(q, k, v), (k, v), d_output)
    assert_same(torch.autograd.grad(output, (k, v), d_output), expected)


def test_the_gradient_of_a_sum_takes_the_shorter_way():
    q, k, v = (x.requires_grad_() for x in plain_qkv())
    expected = torch.autograd.grad(fovea.attention(q, k, v), (q, k, v), torch.ones(1, 2, 4, 8))
    with mock.patch.object(_plain_calls.Attention, "backward", side_effect=AssertionError("the longer way")):
        found = torch.autograd.grad(fovea.attention(q, k, v).sum(), (q, k, v))
    assert_same(found, expected)


def test_a_batch_of_losses():
    q, k, v = (x.requires_grad_() for x in plain_qkv())
    output = fovea.attention(q, k, v)
    losses = torch.randn(3, *output.shape)
    found = torch.autograd.grad(output, (q, k, v), losses, retain_graph=True, is_grads_batched=True)
    for n, loss in enumerate(losses):
        one = torch.autograd.grad(output, (q, k, v), loss, retain_graph=True)
        for a, b in zip(found, one, strict=True):
            torch.testing.assert_close(a[n], b)


def test_an_operand_changed_in_place_is_refused():
    q, k, v = (x.requires_grad_() for x in plain_qkv())
    output = fovea.attention(q, k, v)
    with torch.no_grad():
        k += 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        output.sum().backward()


WRONG = {
    "one axis": (torch.zeros(8), torch.zeros(1, 2, 4, 8), torch.zeros(1, 2, 4, 8)),
    "another dtype": (torch.zeros(1, 2, 4, 8), torch.zeros(1, 2, 4, 8).double(), torch.zeros(1, 2, 4, 8)),
    "another head_dim": (torch.zeros(1, 2, 4, 8), torch.zeros(1, 2, 4, 9), torch.zeros(1, 2, 4, 8)),
    "fewer values": (torch.zeros(1, 2, 4, 8), torch.zeros(1, 2, 4, 8), torch.zeros(1, 2, 3, 8)),
    "three heads": (torch.zeros(1, 2, 4, 8), torch.zeros(1, 3, 4, 8), torch.zeros(1, 3, 4, 8)),
    "whole numbers": (torch.zeros(1, 2, 4, 8).int(), torch.zeros(1, 2, 4, 8).int(), torch.zeros(1, 2, 4, 8).int()),
    "a sparse key": (torch.zeros(1, 2, 4, 8), torch.zeros(1, 2, 4, 8).to_sparse(), torch.zeros(1, 2, 4, 8)),
    "no memory": (torch.zeros(1, 2, 4, 8), torch.zeros(1, 2, 4, 8, device="meta"), torch.zeros(1, 2, 4, 8)),
    "an array": (torch.zeros(1, 2, 4, 8), torch.zeros(1, 2, 4, 8).numpy(), torch.zeros(1, 2, 4, 8)),
}


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("function", (fovea.attention, fovea.torch.scaled_dot_product_attention))
def test_wrong_arguments_get_the_errors_of_the_longer_way(name, function):
    with pytest.raises(fovea.InvalidArgument) as found:
        function(*WRONG[name])
    with pytest.raises(fovea.InvalidArgument) as expected:
        longer(lambda: function(*WRONG[name]))
    assert str(found.value) == str(expected.value)


def test_sdpa_without_enable_gqa_refuses_other_heads():
    q, k = torch.zeros(1, 4, 3, 8), torch.zeros(1, 2, 3, 8)
    with pytest.raises(fovea.InvalidArgument):
        fovea.torch.scaled_dot_product_attention(q, k, k)
    assert fovea.torch.scaled_dot_product_attention(q, k, k, enable_gqa=True).shape == q.shape


def test_more_shapes_than_are_kept():
    for length in range(1, 30):
        q, k, v = (torch.randn(1, 2, length, 8) for _ in range(3))
        assert_same([fovea.attention(q, k, v)], longer(lambda: [fovea.attention(q, k, v)]))


def test_arrays_that_only_the_longer_way_serves_keep_their_gradients():
    """Axes that broadcast, and values of another width."""
    q, k, v = (torch.randn(shape, requires_grad=True) for shape in ((2, 1, 4, 8), (2, 3, 4, 8), (2, 3, 4, 8)))
    found = fovea.torch.scaled_dot_product_attention(q, k, v)
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v)
    torch.testing.assert_close(found, expected)
    d_output = torch.randn_like(expected)
    torch.testing.assert_close(
        torch.autograd.grad(found, (q, k, v), d_output), torch.autograd.grad(expected, (q, k, v), d_output)
    )
    wide = torch.randn(2, 3, 4, 5, requires_grad=True)
    assert fovea.attention(k, k, wide).shape == (2, 3, 4, 5)
