"""`fovea.attention` on tensors beside PyTorch's attention and flex_attention."""

import itertools

import numpy as np
import pytest
from torch_support import F64, bound, math_sdpa, plain, tensors, torch

import fovea

flex = pytest.importorskip("torch.nn.attention.flex_attention")

SHAPES = [  # batch, heads, kv heads, query_len, key_len, dim, value_dim
    (1, 1, 1, 1, 1, 1, 1),
    (2, 3, 3, 5, 5, 8, 8),
    (1, 4, 2, 7, 13, 16, 5),
    (2, 6, 1, 1, 33, 3, 9),
    (1, 8, 2, 65, 65, 64, 64),
    (3, 2, 2, 17, 4, 40, 24),
    (1, 2, 2, 0, 5, 8, 8),
    (0, 2, 1, 3, 5, 8, 8),
    (1, 2, 1, 130, 257, 32, 32),
]
DTYPES = [F64, torch.float32, torch.bfloat16, torch.float16]


def made(shape, dtype=F64, grad=False):
    b, h, g, n, m, d, e = shape
    return tensors((b, h, n, d), (b, g, m, d), (b, g, m, e), dtype=dtype, grad=grad)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_against_the_math_backend(shape, dtype):
    q, k, v = made(shape, dtype)
    for causal in (False, True):
        mask = fovea.Causal() if causal else None
        found = fovea.attention(q, k, v, mask=mask, query_offset=0)
        wide = [x.double() for x in (q, k, v)]
        expected = math_sdpa(*wide, is_causal=causal, enable_gqa=True)
        assert found.dtype == dtype and found.shape == expected.shape
        assert found.numel() == 0 or (found.double() - expected).abs().max() <= bound(q, k, v)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_gradients_against_the_math_backend(shape, dtype):
    q, k, v = made(shape, dtype, grad=True)
    wide = [x.detach().double().requires_grad_() for x in (q, k, v)]
    (weight,) = tensors((*q.shape[:3], v.shape[-1]), dtype=dtype, seed=1)
    found = torch.autograd.grad(fovea.attention(q, k, v), (q, k, v), weight)
    expected = torch.autograd.grad(math_sdpa(*wide, enable_gqa=True), wide, weight.double())
    # dS = P·(dO·Vᵀ - D): each factor has the error bound of an output, and rows of a group are summed.
    slack = bound(q, k, v) * (q.shape[2] * q.shape[1] // k.shape[1] + k.shape[2] + 4) ** 0.5
    for x, y, of in zip(found, expected, (q, k, v)):
        assert x.dtype == of.dtype and x.shape == of.shape
        assert x.numel() == 0 or (x - y).abs().max() <= slack * max(1.0, y.abs().max().item()) * 8


FLEX_SHAPES = [(1, 2, 2, 5, 5, 8, 8), (2, 4, 2, 19, 33, 16, 16), (1, 4, 1, 66, 66, 8, 8)]
slopes = torch.tensor(fovea.alibi_slopes(4), dtype=F64)
table = torch.linspace(-1, 1, 4 * 9, dtype=F64).reshape(4, 9)


def flex_mods(heads, offset):
    """name → (fovea's mods, flex_attention's score_mod, the largest number added)."""
    own = slopes[:heads].clone()
    near = table[:heads].clone()

    def relative(s, b, h, i, j):
        return s + near[h, (i + offset - j).clamp(-4, 4) + 4]

    def both(s, b, h, i, j):
        return 3.0 * torch.tanh(s / 3.0) - own[h] * (i + offset - j)

    return {
        "alibi": ([fovea.AlibiBias(own)], lambda s, b, h, i, j: s - own[h] * (i + offset - j)),
        "soft-cap": ([fovea.SoftCap(2.0)], lambda s, b, h, i, j: 2.0 * torch.tanh(s / 2.0)),
        "cap, then alibi": ([fovea.SoftCap(3.0), fovea.AlibiBias(own)], both),
        "relative": ([fovea.RelativeKeyBias(near[None, :, None, :])], relative),
        "temperature": ([fovea.Temperature(0.5)], lambda s, b, h, i, j: s / 0.5),
    }


FLEX_MASKS = {
    "none": lambda offset: (None, None),
    "causal": lambda offset: (fovea.Causal(), lambda b, h, i, j: i + offset >= j),
    "window": lambda offset: (
        fovea.Causal() & fovea.SlidingWindow(3),
        lambda b, h, i, j: (i + offset >= j) & (i + offset - j <= 3),
    ),
    "documents": lambda offset: (
        fovea.Documents([0, 3, 17, 66]),
        lambda b, h, i, j: (
            ((i + offset >= 3).int() + (i + offset >= 17).int()) == ((j >= 3).int() + (j >= 17).int())
        ),
    ),
    "prefix": lambda offset: (fovea.Prefix(4), lambda b, h, i, j: (j < 4) | (j <= i + offset)),
    "blocks": lambda offset: (
        fovea.BlockTable(8, [[(r * 3 + c) % 4 != 1 for c in range(9)] for r in range(9)]),
        lambda b, h, i, j: (((i + offset) // 8) * 3 + j // 8) % 4 != 1,
    ),
    "odd function": lambda offset: (
        lambda b, h, i, j: ((i - j) % 3 == 0) | (h == 1),
        lambda b, h, i, j: ((i + offset - j) % 3 == 0) | (h == 1),
    ),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FLEX_MASKS)
@pytest.mark.parametrize("shape", FLEX_SHAPES, ids=str)
def test_against_flex_attention(shape, name):
    b, h, g, n, m, d, e = shape
    q, k, v = made(shape)
    mask, mask_mod = FLEX_MASKS[name](m - n)
    blocks = mask_mod and flex.create_block_mask(mask_mod, b, h, n, m, device="cpu", BLOCK_SIZE=16)
    for label, (mods, score_mod) in {"none": ([], None), **flex_mods(h, m - n)}.items():
        expected, lse = flex.flex_attention(
            q, k, v, score_mod=score_mod, block_mask=blocks, enable_gqa=True, return_lse=True
        )
        found, ours = fovea.attention(q, k, v, mods=mods, mask=mask, return_lse=True)
        assert (found - expected).abs().max() <= bound(q, k, v, extra=70.0), label
        assert torch.allclose(ours, lse, atol=1e-12, rtol=1e-12), label


def test_every_stride_is_right():
    base = tensors((4, 6, 5, 2))[0]
    views = {
        "transposed heads": base.permute(0, 2, 1, 3),
        "innermost not contiguous": base.transpose(-1, -2),
        "sliced": base[1:3, ::2, 1:, :],
        "expanded": base[:1, :1].expand(3, 2, 5, 2),
        "last axis expanded": base[..., :1].expand(4, 6, 5, 8),
        "negated view": torch._neg_view(base),
    }
    for name, x in views.items():
        found = fovea.attention(x, x, x, mask=fovea.Causal())
        copy = x.detach().clone(memory_format=torch.contiguous_format).resolve_neg()
        expected = fovea.attention(copy, copy, copy, mask=fovea.Causal())
        assert torch.equal(found, expected), name


def test_gradients_of_expanded_inputs_have_their_shape():
    (q,) = tensors((2, 4, 5, 8), grad=True)
    (k,) = tensors((2, 1, 5, 8), seed=1, grad=True)
    wide = k.expand(2, 4, 5, 8)
    fovea.attention(q, wide, wide).sum().backward()
    found = k.grad.clone()
    k.grad = None
    plain(q, wide, wide)[0].sum().backward()
    assert found.shape == k.shape and torch.allclose(found, k.grad, atol=1e-13)


def test_weights_and_lse_are_returned_together():
    q, k, v = made((2, 4, 2, 5, 9, 8, 8))
    output, lse, weights = fovea.attention(q, k, v, return_lse=True, return_weights=True)
    expected = plain(q, k, v)
    for x, y in zip((output, weights, lse), expected):
        assert torch.allclose(x, y, atol=1e-13)
    some = fovea.attention(q, k, v, return_weights=True, weight_heads=[3, 0], weight_rows=[4])[1]
    assert torch.allclose(some, weights[:, [3, 0]][:, :, [4]], atol=1e-15)
    assert torch.allclose(fovea.attention(q, k, None), weights, atol=1e-15)


def test_masks_of_all_kinds_agree():
    q, k, v = made((2, 4, 2, 6, 9, 8, 8))
    i, j = torch.arange(6)[:, None] + 3, torch.arange(9)[None, :]
    visible = j <= i
    same = [
        fovea.Causal(),
        visible,
        visible[None, None].expand(2, 4, 6, 9),
        visible.numpy(),
        torch.zeros(6, 9, dtype=F64).masked_fill(~visible, -torch.inf),
        lambda b, h, i, j: j <= i,
        fovea.ArrayMask(visible) & fovea.SlidingWindow(None, None),
        ~fovea.ArrayMask(~visible),
    ]
    found = [fovea.attention(q, k, v, mask=mask) for mask in same]
    for x in found[1:]:
        assert torch.allclose(x, found[0], atol=1e-14)


def test_lengths_may_be_tensors():
    q, k, v = made((3, 2, 2, 4, 6, 8, 8))
    lengths = torch.tensor([6, 1, 0])
    found = fovea.attention(q, k, v, mask=fovea.KeyLengths(lengths))
    assert torch.equal(found, fovea.attention(q, k, v, mask=fovea.KeyLengths([6, 1, 0])))
    assert found[2].abs().max() == 0


def test_autocast_is_that_of_pytorch():
    q, k, v = made((1, 2, 2, 5, 5, 8, 8), torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        found = fovea.attention(q, k.bfloat16(), v)
        assert found.dtype == math_sdpa(q, k, v).dtype == torch.bfloat16
        wide = [x.double() for x in (q, k, v)]
        assert fovea.attention(*wide).dtype == F64
        explained = fovea.explain(q, k.bfloat16(), v)
    assert explained == fovea.explain(q.bfloat16(), k.bfloat16(), v.bfloat16())
    assert torch.equal(found, fovea.attention(q.bfloat16(), k.bfloat16(), v.bfloat16()))


def test_grid_is_a_grid():
    """Every pair of mods in both orders, compared with the same formula written out."""
    q, k, v = made((1, 4, 4, 9, 9, 8, 8))
    own = slopes.clone().reshape(1, -1, 1, 1)
    mods = {
        fovea.SoftCap(2.0): lambda s, h, i, j: 2 * torch.tanh(s / 2),
        fovea.AlibiBias(slopes): lambda s, h, i, j: s - own * (i - j),
        fovea.LearnedTemperature(slopes + 1): lambda s, h, i, j: s / (own + 1),
    }
    for (a, f), (b, g) in itertools.permutations(mods.items(), 2):
        expected = plain(q, k, v, lambda s, h, i, j: g(f(s, h, i, j), h, i, j))[0]
        assert torch.allclose(fovea.attention(q, k, v, mods=[a, b]), expected, atol=1e-13)


def mask_mods():
    flex = torch.nn.attention.flex_attention
    lengths = torch.tensor([5, 3])
    kinds = torch.tensor([0, 1] * 4)

    def causal(b, h, i, j):
        return j <= i

    def near(b, h, i, j):
        return i - j < 3

    return {
        "and": flex.and_masks(causal, near),
        "or": flex.or_masks(causal, near),
        "none": flex.noop_mask,
        "lengths": lambda b, h, i, j: j < lengths[b],
        "kinds, NumPy's": lambda b, h, i, j: kinds.numpy()[i] == kinds.numpy()[j],
        "kinds": lambda b, h, i, j: (kinds[i] == kinds[j]) & (h > 0),
        "logical_and": lambda b, h, i, j: torch.logical_and(i >= j, j.clamp(max=3) < 3),
        "where": lambda b, h, i, j: torch.where(i > j, True, False),
        "NumPy": lambda b, h, i, j: np.logical_and(i >= j, i - j < 3),
    }


@pytest.mark.filterwarnings("ignore:__array_wrap__")
@pytest.mark.parametrize("name", mask_mods())
def test_mask_mods_of_flex_attention(name):
    q, k, v = tensors((2, 4, 8, 8), (2, 4, 8, 8), (2, 4, 8, 8))
    mod = mask_mods()[name]
    b, h, i, j = (torch.arange(n) for n in (2, 4, 8, 8))
    index = b.reshape(-1, 1, 1, 1), h.reshape(1, -1, 1, 1), i.reshape(1, 1, -1, 1), j.reshape(1, 1, 1, -1)
    said = torch.as_tensor(mod(*index)).bool().expand(2, 4, 8, 8)
    expected = fovea.attention(q, k, v, mask=said)
    assert torch.equal(fovea.attention(q, k, v, mask=mod), expected)
    assert torch.equal(fovea.attention(q, k, v, mask=fovea.Predicate(mod) & fovea.Everything()), expected)
    (gradient,) = torch.autograd.grad(fovea.attention(q.requires_grad_(), k, v, mask=mod).sum(), q)
    (also,) = torch.autograd.grad(fovea.attention(q, k, v, mask=said).sum(), q)
    assert torch.equal(gradient, also)


def test_indices_are_arrays_of_the_querys_library():
    kinds = set()
    near = fovea.Predicate(lambda b, h, i, j: kinds.update(map(type, (b, h, i, j))) or (i - j < 2))
    (q,) = tensors((2, 4, 8, 8))
    found = fovea.attention(q, q, q, mask=near)
    assert kinds == {torch.Tensor}
    kinds.clear()
    assert np.array_equal(fovea.attention(*[q.numpy()] * 3, mask=near), found.numpy())
    assert kinds == {np.ndarray}


def test_a_block_mask_is_refused_with_an_alternative():
    flex = torch.nn.attention.flex_attention
    blocks = flex.create_block_mask(lambda b, h, i, j: j <= i, 2, 4, 8, 8, device="cpu")
    (q,) = tensors((2, 4, 8, 8))
    with pytest.raises(fovea.InvalidArgument, match="block_mask.mask_mod"):
        fovea.attention(q, q, q, mask=blocks)
    assert torch.equal(fovea.attention(q, q, q, mask=blocks.mask_mod), fovea.attention(q, q, q, mask=fovea.Causal()))


def test_calls_without_gradients_refuse_tensors_that_require_them():
    q, k, v = tensors((1, 2, 4, 8), (1, 2, 4, 8), (1, 2, 4, 8))
    slopes = torch.ones(2, dtype=F64, requires_grad=True)
    made = fovea.plan(num_query_heads=2, query_len=4, head_dim=8, dtype="f64")
    sloped = fovea.plan(num_query_heads=2, query_len=4, head_dim=8, dtype="f64", mods=[fovea.AlibiBias(slopes)])
    wants = k.clone().requires_grad_()
    pair = fovea.attention(q, wants, v, return_lse=True)
    for call, argument in [
        (lambda: made(q, wants, v), "key"),
        (lambda: sloped(q, k, v), "mods[0].slope"),
        (lambda: fovea.merge([pair, pair]), "parts[0][0]"),
        (lambda: fovea.attention(q.numpy(), wants, v), "key"),
        (lambda: fovea.attention(q.numpy(), k.numpy(), v), "value"),
        (lambda: made(q, k.to_sparse(), v), "key"),
        (lambda: made(q.to("meta"), k, v), "query"),
        (lambda: made(q, k, v.long()), "value"),
        (lambda: made(q, k.numpy(), v), "key"),
    ]:
        with pytest.raises(fovea.InvalidArgument) as caught:
            call()
        assert caught.value.argument == argument
        if argument == "parts[0][0]":
            assert "detach" in str(caught.value)
    with torch.no_grad():
        assert torch.equal(made(q, wants, v), fovea.attention(q, k, v))
        fovea.merge([pair, pair])
        assert torch.equal(sloped(q, k, v), fovea.attention(q, k, v, mods=[fovea.AlibiBias(slopes)]))
    assert torch.equal(made(q, wants.detach(), v), fovea.attention(q, k, v))


def test_plans_draw_from_pytorchs_generator():
    q, k, v = tensors((1, 2, 4, 8), (1, 2, 4, 8), (1, 2, 4, 8))
    made = fovea.plan(num_query_heads=2, query_len=4, head_dim=8, dtype="f64", dropout=0.5)
    torch.manual_seed(0)
    first, second = made(q, k, v), made(q, k, v)
    torch.manual_seed(0)
    assert torch.equal(made(q, k, v), first) and not torch.equal(first, second)
    torch.manual_seed(0)
    assert torch.equal(fovea.attention(q, k, v, dropout=0.5), first)
    assert torch.equal(made(q, k, v, seed=3), fovea.attention(q, k, v, dropout=0.5, seed=3))
