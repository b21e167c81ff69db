"""The tutorials' self-attention of docs/ported-layer.md: it is the oracle of the same layer on Fovea, and its traps are
what the page says."""

from __future__ import annotations

import importlib.util
import math
import re
import subprocess
import sys
from pathlib import Path

import pytest
from torch_support import F64, UNIT, torch

import fovea
import fovea.nn

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "examples" / "ported_layer"
_spec = importlib.util.spec_from_file_location("ported_layer", EXAMPLE / "layer.py")
layers = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(layers)

SHAPES = [  # batch, query_len, key_len, embed_size, heads
    (1, 1, 1, 4, 1),
    (2, 7, 7, 12, 3),
    (3, 5, 18, 64, 8),
    (2, 33, 9, 40, 2),
    (1, 130, 130, 256, 4),
    (2, 64, 64, 96, 12),
]


def made(embed_size, heads, dtype=F64):
    """(theirs, ours) with the same weights."""
    torch.manual_seed(embed_size + heads)
    theirs = layers.SelfAttention(embed_size, heads).to(dtype)
    ours = layers.SelfAttentionOnFovea(embed_size, heads).to(dtype)
    ours.load_state_dict(theirs.state_dict())
    return theirs, ours


def inputs(shape, dtype=F64):
    """values, keys, query."""
    batch, query_len, key_len, embed_size, _ = shape
    generator = torch.Generator().manual_seed(1)
    sizes = ((batch, key_len, embed_size),) * 2 + ((batch, query_len, embed_size),)
    return [torch.randn(size, generator=generator, dtype=F64).to(dtype) for size in sizes]


def lengths_of(batch, key_len):
    """From all keys down to one."""
    return [max(1, key_len - entry * (key_len - 1) // max(1, batch - 1)) for entry in range(batch)]


def masks(shape):
    """name → the layer's mask; every row sees a key."""
    batch, query_len, key_len, *_ = shape
    visible = torch.arange(key_len) < torch.tensor(lengths_of(batch, key_len))[:, None]
    padding = visible[:, None, None, :].int()  # [N, 1, 1, L]
    triangle = torch.ones(query_len, key_len).tril().int()
    some = (torch.rand(batch, 1, query_len, key_len, generator=torch.Generator().manual_seed(2)) < 0.3).int()
    some[..., 0] = 1
    return {
        "none": None,
        "padding": padding,
        "causal": triangle[None, None].expand(batch, 1, -1, -1),
        "padding and causal": padding * triangle,  # [N, 1, L, L]
        "any": some,
        "truth values": padding.bool(),
        "numbers": some * 0.5,  # keys with a number other than 0 are seen
    }


def derivative_by(out):
    """A loss's derivative by an output, the same in all dtypes."""
    return torch.randn(out.shape, generator=torch.Generator().manual_seed(3), dtype=F64).to(out.dtype)


def run(layer, given, mask):
    """The output, and gradients of values, keys, query and all weights."""
    given = [x.clone().requires_grad_() for x in given]
    out = layer(*given, mask)
    by_output = derivative_by(out)
    names = ("values in", "keys in", "query in", *(name for name, _ in layer.named_parameters()))
    gradients = torch.autograd.grad(out, (*given, *layer.parameters()), by_output)
    return out.detach(), dict(zip(names, gradients))


def assert_same(found, expected, tolerance, of_gradients=None):
    """Outputs are compared by elements, gradients relative to the largest element of each, because they are sums over batch and length."""
    assert (found[0] - expected[0]).abs().max() <= tolerance
    tolerance = of_gradients or tolerance
    largest = max(x.abs().max() for x in expected[1].values())
    assert found[1].keys() == expected[1].keys()
    for name, x in expected[1].items():
        # A gradient that is exactly 0 (one key alone has weight 1) has no size to compare with.
        size = x.abs().max() if x.abs().max() > 1e-4 * largest else largest
        assert (found[1][name] - x).abs().max() <= tolerance * size, name


@pytest.mark.parametrize("kind", masks(SHAPES[0]))
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_in_float64_the_two_are_one_function(shape, kind):
    theirs, ours = made(*shape[3:])
    mask = masks(shape)[kind]
    assert_same(run(ours, inputs(shape), mask), run(theirs, inputs(shape), mask), 1e-12)


@pytest.mark.parametrize("kind", masks(SHAPES[0]))
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_in_float32_within_a_millionth(shape, kind):
    """Of each other, and ours of the layer in float64.

    The gradient of a shared weight is a sum of batch·length·heads products in an order that differs, whose errors of
    half a unit each add up like a random walk: with more than 70 of them to more than a millionth, in theirs too. Of the
    many elements of a gradient the worst is off by about two standard deviations of that walk.
    """
    batch, query_len, key_len, embed_size, heads = shape
    theirs, ours = made(embed_size, heads, dtype=torch.float32)
    given, mask = inputs(shape, torch.float32), masks(shape)[kind]
    terms = batch * max(query_len, key_len) * heads
    of_gradients = max(1e-6, 2 * terms**0.5 * UNIT[torch.float32])
    found = run(ours, given, mask)
    assert_same(found, run(theirs, given, mask), 1e-6, of_gradients)
    assert_same(found, run(theirs.double(), [x.double() for x in given], mask), 1e-6, of_gradients)


@pytest.mark.parametrize("shape", [x for x in SHAPES if x[1] == x[2]], ids=str)
def test_masks_by_name(shape):
    theirs, ours = made(*shape[3:])
    arrays, lengths = masks(shape), lengths_of(shape[0], shape[2])
    for kind, named in (
        ("padding", fovea.KeyLengths(lengths)),
        ("padding", fovea.KeyLengths(torch.tensor(lengths))),
        ("causal", fovea.Causal()),
        ("padding and causal", fovea.KeyLengths(lengths) & fovea.Causal()),
    ):
        assert_same(run(ours, inputs(shape), named), run(theirs, inputs(shape), arrays[kind]), 1e-12)


def of_heads(layer, given, mask):
    """[N, L, embed_size]: the outputs of the heads, before fc_out."""
    found = []
    hook = layer.fc_out.register_forward_pre_hook(lambda module, inputs: found.append(inputs[0]))
    layer(*given, mask)
    hook.remove()
    return found[0]


@pytest.mark.parametrize("dtype", [F64, torch.float32], ids=str)
def test_a_row_that_sees_nothing(dtype):
    """Their layer gives the mean of all values, padding or not; ours gives 0. Neither is NaN."""
    shape = (3, 11, 11, 24, 4)
    theirs, ours = made(*shape[3:], dtype=dtype)
    lengths = torch.tensor([11, 4, 0])
    padding = (torch.arange(11) < lengths[:, None])[:, None, None, :].int()
    given = [x.requires_grad_() for x in inputs(shape, dtype)]
    mean = theirs.values(theirs.by_head(given[0]))[2].mean(0).flatten().detach()

    found = of_heads(theirs, given, padding)
    assert torch.allclose(found[2], mean.expand(11, -1), atol=64 * UNIT[dtype])
    (gradient,) = torch.autograd.grad(found.square().sum(), given[0])
    assert gradient[2].abs().min() > 0
    for mask in (padding, padding.bool(), fovea.KeyLengths(lengths)):
        found = of_heads(ours, given, mask)
        assert not found[2].any() and found[:2].any()
        gradients = torch.autograd.grad(found.square().sum(), (*given, ours.values.weight))
        assert not any(x[2].any() for x in gradients[:3])
        assert all(x.isfinite().all() for x in gradients)
        bias = ours(*given, mask)[2]
        assert torch.equal(bias, ours.fc_out.bias.expand_as(bias))


def test_padding_before_the_tokens_reads_the_future_in_theirs():
    shape = (1, 6, 6, 8, 2)
    theirs, ours = made(*shape[3:])
    values, keys, query = inputs(shape)
    mask = (torch.arange(6) >= 2).int() * torch.ones(6, 6).tril().int()  # two positions of padding first
    changed = values.clone()
    changed[:, 5] += 1  # the last token
    for layer, leaks in ((theirs, True), (ours, False)):
        before, after = (of_heads(layer, (x, keys, query), mask[None, None]) for x in (values, changed))
        assert torch.equal(before[:, 2:5], after[:, 2:5])
        assert torch.equal(before[:, :2], after[:, :2]) != leaks


def test_nan_in_padding_stays_there():
    shape = (1, 9, 9, 16, 2)
    theirs, ours = made(*shape[3:])
    values, keys, query = inputs(shape)
    mask = (torch.arange(9) < 5).int()[None, None, None]
    expected = ours(values, keys, query, mask)
    values, keys = (torch.where(torch.arange(9)[:, None] < 5, x, torch.nan) for x in (values, keys))
    assert theirs(values, keys, query, mask).isnan().all()
    assert torch.equal(ours(values, keys, query, mask), expected)


def test_float16():
    """-1e20 does not fit into float16; our layer does not use it, whatever the rows see."""
    theirs, ours = made(32, 4, dtype=torch.float16)
    given = [x.half() for x in inputs((2, 6, 6, 32, 4))]
    mask = (torch.arange(6) < torch.tensor([[6], [0]]))[:, None, None, :].int()
    with pytest.raises(RuntimeError, match="overflow"):
        theirs(*given, mask)
    found = ours(*given, mask)
    wide, _ = made(32, 4)
    wide.load_state_dict(theirs.state_dict())
    expected = wide(*(x.double() for x in given), mask)
    assert found.isfinite().all() and torch.equal(found[1], ours.fc_out.bias.expand_as(found[1]))
    # Projections, heads and output are each rounded to float16.
    assert (found[0] - expected[0]).abs().max() <= 16 * UNIT[torch.float16] * expected[0].abs().max()


def with_default_scale(layer, x):
    v, k, q = (project(layer.by_head(x)).transpose(1, 2) for project in (layer.values, layer.keys, layer.queries))
    return layer.fc_out(fovea.attention(q, k, v).transpose(1, 2).flatten(2))


@pytest.mark.parametrize("heads", [1, 2, 8])
def test_the_scale(heads):
    """Their scale is smaller than 1/sqrt(head_dim) by a factor of sqrt(heads), which can be folded into the queries."""
    theirs, _ = made(32, heads)
    x = inputs((2, 9, 9, 32, heads))[0]
    expected = theirs(x, x, x, None)
    assert (heads == 1) == ((with_default_scale(theirs, x) - expected).abs().max() < 1e-6)
    with torch.no_grad():
        theirs.queries.weight /= math.sqrt(heads)
    assert (with_default_scale(theirs, x) - expected).abs().max() < 1e-12


def as_multihead(layer):
    full = fovea.nn.MultiheadAttention(layer.embed_size, layer.heads, batch_first=True, dtype=F64)
    q, k, v = (
        torch.block_diag(*[project.weight * factor] * layer.heads)
        for project, factor in ((layer.queries, layer.heads**-0.5), (layer.keys, 1.0), (layer.values, 1.0))
    )
    with torch.no_grad():
        full.in_proj_weight.copy_(torch.cat([q, k, v]))
        full.in_proj_bias.zero_()
        full.out_proj.load_state_dict(layer.fc_out.state_dict())
    return full


@pytest.mark.parametrize("shape", SHAPES[1:4], ids=str)
def test_as_a_full_multihead_attention(shape):
    """Its gradients, summed over the slices, are those of the shared weights."""
    embed_size, heads = shape[3:]
    theirs, _ = made(embed_size, heads)
    full, mask = as_multihead(theirs), masks(shape)["padding"]
    values, keys, query = inputs(shape)
    expected, gradients = run(theirs, (values, keys, query), mask)
    found, _ = full(query, keys, values, key_padding_mask=mask[:, 0, 0] == 0, need_weights=False)
    assert (found - expected).abs().max() < 1e-12
    (by_weight,) = torch.autograd.grad(found, full.in_proj_weight, derivative_by(found))
    size = embed_size // heads
    for n, (name, factor) in enumerate((("queries", heads**-0.5), ("keys", 1.0), ("values", 1.0))):
        rows = by_weight[n * embed_size : (n + 1) * embed_size]
        summed = sum(rows[i : i + size, i : i + size] for i in range(0, embed_size, size)) * factor
        assert torch.allclose(summed, gradients[f"{name}.weight"], atol=1e-11), name


def test_heads_are_interchangeable():
    """Whatever the shared weights are: permuting the heads permutes their outputs, and each head reads only its own slice."""
    shape = (2, 7, 7, 12, 3)
    theirs, _ = made(12, 3)
    given = inputs(shape)
    expected = of_heads(theirs, given, None).unflatten(-1, (3, 4))
    moved = [x.unflatten(-1, (3, 4))[..., [2, 0, 1], :].flatten(-2) for x in given]
    found = of_heads(theirs, moved, None).unflatten(-1, (3, 4))
    assert torch.allclose(found, expected[..., [2, 0, 1], :], atol=1e-14)
    given = [x.requires_grad_() for x in given]
    first = of_heads(theirs, given, None).unflatten(-1, (3, 4))[..., 0, :]
    for gradient in torch.autograd.grad(first.square().sum(), given):
        assert gradient[..., :4].any() and not gradient[..., 4:].any()


def test_memory():
    """The page's command, at one small length: the scores are most of their layer's memory; ours stores none."""
    pytest.importorskip("resource")
    sizes = ["--lengths", "1024", "--embed-size", "64", "--heads", "8"]
    said = subprocess.run([sys.executable, EXAMPLE / "memory.py", *sizes], check=True, capture_output=True, text=True)
    head, _, row = said.stdout.splitlines()
    assert head.count("|") == row.count("|") == 7
    length, scores, *figures = (float(cell.replace("MiB", "").replace(",", "")) for cell in row.strip("|").split("|"))
    their_forward, their_backward, our_forward, our_backward = figures
    assert (length, scores) == (1024, 32)
    assert their_forward > 1.5 * scores and their_backward > 2 * scores
    assert our_forward < scores and our_backward < scores


def test_the_page_shows_these_layers():
    code = (EXAMPLE / "layer.py").read_text()
    page = (ROOT / "docs" / "ported-layer.md").read_text()
    shown = re.findall(r"^(class \w+\(.*?)^```$", page, re.M | re.S)
    assert len(shown) == 2 and all(text in code for text in shown)
