"""Layers and whole models over Fovea: nn.MultiheadAttention, transformer layers, transformers, a small GPT."""

import copy
import itertools
import pickle

import pytest
from torch_support import F64, tensors, torch

import fovea
import fovea.nn
import fovea.torch

E, HEADS = 12, 4


def pair(**options):
    """(PyTorch's layer, Fovea's layer) with the same weights."""
    theirs = torch.nn.MultiheadAttention(E, HEADS, dtype=F64, **options)
    ours = fovea.nn.MultiheadAttention(E, HEADS, dtype=F64, **options)
    generator = torch.Generator().manual_seed(0)
    for x in theirs.parameters():
        x.data = torch.randn(x.shape, dtype=F64, generator=generator) / 3
    ours.load_state_dict(theirs.state_dict())
    theirs.load_state_dict(ours.state_dict())
    return theirs, ours


def compared(theirs, ours, inputs, **options):
    results = []
    for layer in (theirs, ours):
        own = [x.detach().clone().requires_grad_() for x in inputs]
        layer.zero_grad()
        output, weights = layer(*own, **options)
        total = output.square().sum() + (0 if weights is None else weights.square().sum())
        total.backward()
        grads = [x.grad for x in own] + [x.grad for _, x in sorted(layer.named_parameters())]
        results.append((output, weights, *grads))
    for x, y in zip(*results):
        assert (x is None) == (y is None)
        assert x is None or (x.shape == y.shape and torch.allclose(x, y, atol=1e-12))


OPTIONS = [
    {},
    {"bias": False},
    {"batch_first": True},
    {"add_bias_kv": True},
    {"add_zero_attn": True, "batch_first": True},
    {"add_bias_kv": True, "add_zero_attn": True},
    {"kdim": 5, "vdim": 7},
    {"kdim": 5, "bias": False, "batch_first": True, "add_bias_kv": True},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_multihead_attention(options):
    theirs, ours = pair(**options)
    n, m, b = 3, 5, 2
    lead = [(b, n), (b, m), (b, m)] if options.get("batch_first") else [(n, b), (m, b), (m, b)]
    widths = (E, options.get("kdim", E), options.get("vdim", E))
    inputs = tensors(*((*two, width) for two, width in zip(lead, widths)))
    padding = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    hidden = torch.ones(n, m, dtype=torch.bool).triu(3)
    each = hidden.repeat(b * HEADS, 1, 1)
    each[3] = False
    masks = [None, hidden, each, torch.randn(n, m, dtype=F64), torch.randn(b * HEADS, n, m, dtype=F64)]
    paddings = [None, padding, torch.randn(b, m, dtype=F64)]
    for need, mean in [(True, True), (True, False), (False, True)]:
        for mask, pad in itertools.product(masks, paddings):
            if mask is not None and pad is not None and mask.dtype != pad.dtype:
                continue  # PyTorch warns: types should match
            compared(
                theirs,
                ours,
                inputs,
                attn_mask=mask,
                key_padding_mask=pad,
                need_weights=need,
                average_attn_weights=mean,
            )


def test_multihead_attention_without_a_batch_and_self_attention():
    theirs, ours = pair()
    compared(theirs, ours, tensors((3, E), (5, E), (5, E)), key_padding_mask=torch.tensor([False] * 4 + [True]))
    (x,) = tensors((6, 2, E))
    causal = torch.ones(6, 6, dtype=torch.bool).triu(1)
    for need in (True, False):
        found, expected = (
            layer(x, x, x, attn_mask=causal, is_causal=True, need_weights=need) for layer in (ours, theirs)
        )
        assert torch.allclose(found[0], expected[0], atol=1e-13)
    with torch.no_grad():
        theirs.eval(), ours.eval()
        assert torch.allclose(theirs(x, x, x)[0], ours(x, x, x)[0], atol=1e-13)


def test_multihead_attention_has_foveas_extras():
    (x,) = tensors((2, 6, E))
    slopes = torch.nn.Parameter(torch.rand(HEADS, dtype=F64))
    layer = fovea.nn.MultiheadAttention(
        E,
        HEADS,
        dtype=F64,
        batch_first=True,
        num_kv_heads=2,
        mods=[fovea.SoftCap(5.0), fovea.AlibiBias(slopes)],
        mask=fovea.Causal(),
        normalizer=fovea.Sparsemax(),
    )
    assert layer.in_proj_weight.shape == (E + 2 * 6, E) and "extra_0" in layer.state_dict()
    output, weights = layer(x, x, x, average_attn_weights=False)
    assert weights.shape == (2, HEADS, 6, 6) and (weights.triu(1) == 0).all()
    output.square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in layer.parameters())
    twin = copy.deepcopy(layer)
    assert twin.mods[1].slopes is twin.extra_0 and torch.equal(twin(x, x, x)[0], layer(x, x, x)[0])
    twin.float()
    assert twin(x.float(), x.float(), x.float())[0].dtype == torch.float32


def _parameter(*shape):
    return torch.nn.Parameter(torch.rand(shape, dtype=F64, generator=torch.Generator().manual_seed(7)) + 0.5)


@pytest.mark.parametrize(
    "extras",
    [
        lambda: {"score": fovea.Cosine(_parameter(HEADS)), "scale": 0.7},
        lambda: {"score": fovea.Additive(_parameter(5, 3), _parameter(5, 3), _parameter(5), _parameter(5))},
        lambda: {"score": fovea.Bilinear(_parameter(HEADS, 3, 3)), "weight_mods": [fovea.LearnedTemperature(_parameter(HEADS))]},
        lambda: {"score": fovea.Location(_parameter(6, 3)), "mask": fovea.Causal()},
        lambda: {"scale": 0.3, "weight_mods": [fovea.LocalGaussian(2.0, 3.0), fovea.SoftCap(2.0)]},
    ],
    ids=["cosine", "additive", "bilinear", "location", "weight mods"],
)
def test_multihead_attention_takes_a_score_a_scale_and_weight_mods(extras):
    """The layer is its projections around one call of fovea.attention, and its parameters get that call's gradients."""
    (x,) = tensors((2, 6, E))
    given = extras()
    layer = fovea.nn.MultiheadAttention(E, HEADS, dtype=F64, batch_first=True, **given)
    output, weights = layer(x, x, x, average_attn_weights=False)
    q, k, v = (y.unflatten(-1, (HEADS, -1)).transpose(1, 2) for y in torch.nn.functional.linear(x, layer.in_proj_weight, layer.in_proj_bias).chunk(3, -1))
    keys = None if isinstance(layer.score, fovea.Location) else k
    inside, expected = fovea.attention(q, keys, v, return_weights=True, **given)
    assert torch.allclose(output, layer.out_proj(inside.transpose(1, 2).flatten(2)), atol=1e-13)
    assert torch.allclose(weights, expected, atol=1e-13)
    plain = fovea.nn.MultiheadAttention(E, HEADS, dtype=F64, batch_first=True)
    plain.load_state_dict(layer.state_dict(), strict=False)
    assert not torch.allclose(plain(x, x, x)[0], output, atol=1e-3)
    count = sum(isinstance(y, torch.nn.Parameter) for part in ([given.get("score")], given.get("weight_mods", ())) for value in part if value for y in value._fields().values())
    extra = [p for name, p in layer.named_parameters() if name.startswith("extra_")]
    assert len(extra) == count
    output.square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().max() > 0 for p in extra)
    again = fovea.nn.MultiheadAttention(E, HEADS, dtype=F64, batch_first=True, **extras())
    again.load_state_dict(layer.state_dict())
    assert torch.equal(again(x, x, x)[0], output)
    assert torch.equal(copy.deepcopy(layer)(x, x, x)[0], output)


def test_multihead_attention_refuses_by_name():
    layer = fovea.nn.MultiheadAttention(E, HEADS)
    x = torch.zeros(3, 2, E)
    for arguments, name in [
        ((x, x, x[:2]), "value"),
        ((x, x[..., :3], x), "key"),
        ((x, torch.zeros(3, 1, E), torch.zeros(3, 1, E)), "key"),
        ((x, x, x, torch.zeros(3, 2, dtype=torch.bool)), "key_padding_mask"),
        ((x, x, x, None, True, torch.zeros(2, 2)), "attn_mask"),
        ((x, x, x, None, True, torch.zeros(3, 3, dtype=torch.int32)), "attn_mask"),
    ]:
        with pytest.raises(fovea.InvalidArgument) as caught:
            layer(*arguments)
        assert caught.value.argument == name
    with pytest.raises(fovea.InvalidArgument, match="num_kv_heads"):
        fovea.nn.MultiheadAttention(E, HEADS, num_kv_heads=3)
    for name, value in (("mods", [fovea.SoftCap(5)]), ("mask", torch.ones(3, 3, dtype=torch.bool)), ("weight_mods", [fovea.SoftCap(5)])):
        with pytest.raises(fovea.InvalidArgument) as caught:
            fovea.nn.MultiheadAttention(E, HEADS, add_zero_attn=True, **{name: value})
        assert caught.value.argument == name


@pytest.fixture
def served(monkeypatch):
    """The number of calls that Fovea served."""
    from fovea.torch import _sdpa

    calls = []
    run = _sdpa.run
    monkeypatch.setattr(_sdpa, "run", lambda *args: calls.append(1) or run(*args))
    return calls


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("training", [False, True])
def test_transformer_layers_under_the_mode(served, training):
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(E, HEADS, 16, dropout=0.0, batch_first=True, dtype=F64)
    model = torch.nn.TransformerEncoder(layer, 2).train(training)
    (x,) = tensors((2, 5, E))
    padding = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    causal = torch.nn.Transformer.generate_square_subsequent_mask(5, dtype=F64)
    options = {"src_key_padding_mask": padding.double().masked_fill(padding, -torch.inf), "mask": causal}
    for given in ({}, options, {"mask": causal, "is_causal": True}):
        with torch.set_grad_enabled(training):
            expected = model(x, **given)
            served.clear()
            with fovea.torch.patched():
                found = model(x, **given)
        assert len(served) == 2 and torch.allclose(found, expected, atol=1e-12)


@pytest.mark.parametrize("name", ["gpt2", "llama"])
@pytest.mark.filterwarnings("ignore")
def test_transformers_models_under_the_mode(served, name):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    if name == "gpt2":
        config = transformers.GPT2Config(n_embd=32, n_head=4, n_layer=2, vocab_size=50, n_positions=32)
    else:
        config = transformers.LlamaConfig(
            hidden_size=32,
            intermediate_size=48,
            num_attention_heads=4,
            num_key_value_heads=2,
            num_hidden_layers=2,
            vocab_size=50,
        )
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="sdpa").eval()
    tokens = torch.randint(0, 50, (2, 9), generator=torch.Generator().manual_seed(0))
    padding = torch.ones_like(tokens)
    padding[1, :3] = 0
    for mask in (None, padding):
        expected = model(tokens, attention_mask=mask, labels=tokens)
        grads = torch.autograd.grad(expected.loss, list(model.parameters()))
        served.clear()
        with fovea.torch.patched():
            found = model(tokens, attention_mask=mask, labels=tokens)
            ours = torch.autograd.grad(found.loss, list(model.parameters()))
        assert len(served) == 2
        seen = padding.bool() if mask is not None else torch.ones_like(padding).bool()
        assert torch.allclose(found.logits[seen], expected.logits[seen], atol=1e-5)
        if mask is None:
            assert all(torch.allclose(x, y, atol=1e-5) for x, y in zip(ours, grads))
    with torch.no_grad():
        expected = model.generate(tokens[:1], max_new_tokens=8, do_sample=False)
        with fovea.torch.patched():
            assert torch.equal(model.generate(tokens[:1], max_new_tokens=8, do_sample=False), expected)


def test_a_small_gpt_learns_the_same():
    """In float64 rounding stays small for this number of steps: the curves are equal."""
    from fovea.bench.gpt import train_both

    theirs, ours = train_both(15, batch=2, context=48, dtype=F64, width=48, heads=3, layers=2)
    assert theirs.losses[-1] < theirs.losses[0] - 0.5
    assert max(abs(a - b) for a, b in zip(theirs.losses, ours.losses)) < 1e-9


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("how", ["a tensor's backward", "backward", "grad"])
@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints_recompute_under_the_mode(served, reentrant, nested, how):
    if reentrant and how == "grad":
        pytest.skip("PyTorch's reentrant checkpoints know backward alone")
    from torch.utils.checkpoint import checkpoint

    torch.manual_seed(0)
    linear = torch.nn.Linear(E, E, dtype=F64)
    (x,) = tensors((1, 2, 8, E), grad=True)

    def attend(x):
        y = linear(x)
        return torch.nn.functional.scaled_dot_product_attention(y, y, y, dropout_p=0.3, is_causal=True)

    def gradients(call):
        linear.zero_grad()
        torch.manual_seed(3)
        with fovea.torch.patched():
            loss = call(x).square().sum()
            if how == "grad":
                return torch.autograd.grad(loss, list(linear.parameters()))
            loss.backward() if how == "a tensor's backward" else torch.autograd.backward(loss)
        return [p.grad for p in linear.parameters()]

    def kept(x):
        return checkpoint(attend, x, use_reentrant=reentrant)

    if nested:
        inner = kept
        kept = lambda x: checkpoint(inner, x, use_reentrant=reentrant)  # noqa: E731
    expected = gradients(attend)
    assert len(served) == 1
    served.clear()
    found = gradients(kept)
    assert len(served) == (3 if nested and reentrant else 2)
    assert all(torch.equal(a, b) for a, b in zip(found, expected))
    with pytest.raises(RuntimeError), fovea.torch.patched():
        torch.autograd.grad(expected[0].sum(), x)
    torch.nn.functional.scaled_dot_product_attention(x, x, x)
    assert len(served) == (3 if nested and reentrant else 2)


def test_parameters_of_mods_may_be_replaced():
    (x,) = tensors((2, 6, E))
    values = torch.rand(HEADS, dtype=F64)

    def layer(numbers, device=None):
        torch.manual_seed(0)
        own = [torch.nn.Parameter(numbers.to(device or "cpu", copy=True)) for _ in range(2)]
        options = {"mods": [fovea.AlibiBias(own[0]), fovea.SoftCap(9.0)], "normalizer": fovea.SoftmaxWithSink(own[1])}
        return fovea.nn.MultiheadAttention(E, HEADS, batch_first=True, dtype=F64, device=device, **options)

    first, second = layer(values), layer(values + 3)
    expected = second(x, x, x)[0]
    assert not torch.allclose(first(x, x, x)[0], expected)
    state = {name: p.detach() for name, p in second.named_parameters()}
    assert torch.equal(torch.func.functional_call(first, state, (x, x, x))[0], expected)
    empty = layer(values, "meta").to_empty(device="cpu")
    assert empty.mods[0].slopes is empty.extra_0 and empty.normalizer.sink is empty.extra_1
    assign = {"assign": True}
    for other, options in [(empty, {}), (copy.deepcopy(first), assign), (layer(values, "meta"), assign)]:
        other.load_state_dict(second.state_dict(), **options)
        assert torch.equal(other(x, x, x)[0], expected)
    twin = pickle.loads(pickle.dumps(second))
    assert twin.mods[0].slopes is twin.extra_0 and torch.equal(twin(x, x, x)[0], expected)
    compiled = torch.compile(first, backend="aot_eager", fullgraph=True)
    compiled(x, x, x)
    first.load_state_dict(second.state_dict(), assign=True)
    assert torch.allclose(compiled(x, x, x)[0], expected, atol=1e-13)


def test_a_tiny_gpt_learns_the_same_for_300_steps():
    """In float32, as models are trained. Both round, each its own way: gradients part by about 64 units of 2^-24
    relatively, AdamW turns that into 64 units of a step of 1e-3 in each of P parameters, at worst all one way, and
    gradients clipped to a norm of 1 turn the parameters' distance √P · steps · lr · 64 u into one of losses.
    (Key biases, whose gradient is rounding and nothing else, go where they will: softmax does not see them.)"""
    from fovea.bench.gpt import Gpt, train_both

    size = {"context": 24, "width": 24, "heads": 2, "layers": 1}
    threads = torch.get_num_threads(), fovea.get_num_threads()
    torch.set_num_threads(1), fovea.set_num_threads(1)  # more would wait for each other
    try:
        theirs, ours = train_both(300, batch=2, **size)
    finally:
        torch.set_num_threads(threads[0]), fovea.set_num_threads(threads[1])
    assert theirs.losses[-1] < theirs.losses[0] - 1
    count = sum(p.numel() for p in Gpt(40, **size).parameters())
    bound = count**0.5 * 300 * 1e-3 * 64 * 2.0**-24
    assert bound < 2e-4
    assert max(abs(a - b) for a, b in zip(theirs.losses, ours.losses)) <= bound
