"""Fovea as attn_implementation="fovea" of transformers' models: outputs and gradients beside "eager"."""

from __future__ import annotations

import subprocess
import sys

import pytest
from torch_support import F64, torch

reason = "needs transformers 5.0 (tests/requirements-torch.txt)"
transformers = pytest.importorskip("transformers", "5.0", reason=reason)

import fovea  # noqa: E402
import fovea.torch  # noqa: E402
from fovea.torch import _report, _transformers_masks  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
fovea.torch.register_with_transformers()

VOCABULARY = 40
LLAMA = dict(
    vocab_size=VOCABULARY,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=64,
)
GEMMA2 = dict(LLAMA, head_dim=8, sliding_window=4, attn_logit_softcapping=2.0, query_pre_attn_scalar=8)
GPT_OSS = dict(LLAMA, head_dim=8, sliding_window=4, num_local_experts=4, num_experts_per_tok=2)
BERT = {name: size for name, size in LLAMA.items() if name != "num_key_value_heads"}
MODERN = dict(BERT, num_hidden_layers=4, local_attention=4, pad_token_id=0)
T5 = dict(vocab_size=VOCABULARY, d_model=32, d_kv=8, d_ff=48, num_layers=2, num_heads=4, decoder_start_token_id=0)
BLOOM = dict(vocab_size=VOCABULARY, hidden_size=32, n_layer=2, n_head=4)
MPT = dict(vocab_size=VOCABULARY, d_model=32, n_layers=2, n_heads=4, expansion_ratio=2, max_seq_len=64)

# The configuration, its arguments, the model, and the number of attention calls in one forward.
FAMILIES = {
    "llama": ("LlamaConfig", LLAMA, "LlamaForCausalLM", 2),
    "qwen2": ("Qwen2Config", LLAMA, "Qwen2ForCausalLM", 2),
    "mistral": ("MistralConfig", dict(LLAMA, sliding_window=4), "MistralForCausalLM", 2),
    "gemma2": ("Gemma2Config", GEMMA2, "Gemma2ForCausalLM", 2),
    "gpt_oss": ("GptOssConfig", GPT_OSS, "GptOssForCausalLM", 2),
    "gpt_neox": ("GPTNeoXConfig", BERT, "GPTNeoXForCausalLM", 2),
    "gpt2": ("GPT2Config", dict(vocab_size=VOCABULARY, n_embd=32, n_head=4, n_layer=2), "GPT2LMHeadModel", 2),
    "bloom": ("BloomConfig", BLOOM, "BloomForCausalLM", 2),
    "bloom, 6 heads": ("BloomConfig", dict(BLOOM, n_head=6, hidden_size=48), "BloomForCausalLM", 2),
    "mpt": ("MptConfig", MPT, "MptForCausalLM", 2),
    "mpt, 6 heads": ("MptConfig", dict(MPT, n_heads=6, d_model=48), "MptForCausalLM", 2),
    "bert": ("BertConfig", BERT, "BertForMaskedLM", 2),
    "modernbert": ("ModernBertConfig", MODERN, "ModernBertForMaskedLM", 4),
    "t5": ("T5Config", T5, "T5ForConditionalGeneration", 6),
}
DECODERS = ["llama", "mistral", "gemma2", "gpt_oss", "gpt_neox", "bloom", "mpt", "t5"]
SIZE = (2, 11)


@pytest.fixture(autouse=True)
def f64_stays_f64(monkeypatch):
    """In many families eager attention rounds the softmax of f64 to f32. This is disabled here, so that both ways can be
    compared in f64."""
    softmax, single = torch.nn.functional.softmax, torch.Tensor.float

    def wide(x, dim=None, _stacklevel=3, dtype=None):
        return softmax(x, dim, dtype=None if x.dtype == F64 else dtype)

    monkeypatch.setattr(torch.nn.functional, "softmax", wide)
    monkeypatch.setattr(torch.Tensor, "float", lambda x: x if x.dtype == F64 else single(x))


def made(family, implementation="eager", **more):
    config, options, model, _ = FAMILIES[family]
    torch.manual_seed(0)
    config = getattr(transformers, config)(**{**options, **more})
    config._attn_implementation = implementation
    config._experts_implementation = "eager"  # the grouped product of PyTorch knows no f64
    found = getattr(transformers, model)(config).to(F64).eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for name, p in found.named_parameters():
            if "norm" not in name:  # nothing that is 0 or alike at the start: sinks, biases, tables
                p.copy_(torch.randn(p.shape, generator=generator, dtype=F64) * 0.3)
    return found


def tokens(seed=0, size=SIZE):
    return torch.randint(1, VOCABULARY, size, generator=torch.Generator().manual_seed(seed))


def padded(how):
    seen = torch.ones(SIZE, dtype=torch.long)
    if how in ("left", "both"):
        seen[1, :4] = 0
    if how in ("right", "both"):
        seen[0, -3:] = 0
    if how == "holes":
        seen[1, 2], seen[0, 5] = 0, 0
    return None if how == "none" else seen


def losses(model, seen, **more):
    """(logits, gradients of all parameters) of a loss without the rows of padding."""
    ids = labels = tokens()
    if seen is not None:  # a decoder's first label is said by the row ahead of it
        before = torch.nn.functional.pad(seen, (1, 0), value=1)[:, :-1]
        labels = ids.masked_fill((seen == 0) | (before == 0), -100)
    found = model(input_ids=ids, attention_mask=seen, labels=labels, **more)
    grads = torch.autograd.grad(found.loss, list(model.parameters()), allow_unused=True)
    return found.logits, grads


@pytest.mark.parametrize("how", ["none", "left", "right", "both", "holes"])
@pytest.mark.parametrize("family", FAMILIES)
def test_outputs_and_gradients_are_those_of_eager(family, how):
    theirs, ours = made(family), made(family, "fovea")
    assert ours.config._attn_implementation == "fovea"
    seen = padded(how)
    expected, of_theirs = losses(theirs, seen)
    with fovea.torch.patched(report=True) as report:
        found, of_ours = losses(ours, seen)
    assert report.served_by == {_report.INTERFACE: FAMILIES[family][3]}
    assert not report.elsewhere
    rows = torch.ones(SIZE, dtype=torch.bool) if seen is None or family == "t5" else seen.bool()
    assert expected[rows].abs().max() > 0.1
    # In f64 throughout, except for the parts that both round to f32 in the same way (rotations, norms).
    assert torch.allclose(found[rows], expected[rows], atol=1e-10, rtol=1e-10)
    for (name, _), a, b in zip(ours.named_parameters(), of_ours, of_theirs):
        assert (a is None) == (b is None), name
        assert a is None or torch.allclose(a, b, atol=1e-10, rtol=1e-8), name


@pytest.mark.parametrize("family", ["llama", "mistral", "gemma2", "gpt_oss", "bert", "bloom", "mpt"])
def test_masks_are_passed_by_name(family, monkeypatch):
    """No tensor of the size of a dense mask is made, also with padding on either side."""

    def refuse(self):
        raise AssertionError("a dense mask was made")

    monkeypatch.setattr(_transformers_masks.Visible, "dense", refuse)
    for how in ("none", "left", "right", "both"):
        made(family, "fovea")(tokens(), attention_mask=padded(how))
    with pytest.raises(AssertionError, match="dense mask"):
        made(family, "fovea")(tokens(), attention_mask=padded("holes"))


@pytest.mark.parametrize("family", DECODERS)
@pytest.mark.parametrize("how", ["none", "left"])
def test_generation_with_a_cache_is_that_of_eager(family, how):
    """20 tokens more, far beyond the windows of 4."""
    options = dict(max_new_tokens=20, min_new_tokens=20, do_sample=False, pad_token_id=0)
    options.update(output_scores=True, return_dict_in_generate=True)
    expected = made(family).generate(tokens(), attention_mask=padded(how), **options)
    with fovea.torch.patched(report=True) as report:
        found = made(family, "fovea").generate(tokens(), attention_mask=padded(how), **options)
    assert report.served >= 20 * 2 and not report.passed_on and not report.elsewhere
    assert torch.equal(found.sequences, expected.sequences)
    for a, b in zip(found.scores, expected.scores):
        assert torch.allclose(a, b, atol=1e-10)


def test_caches_in_pieces_and_of_static_size():
    theirs, ours = made("mistral"), made("mistral", "fovea")
    ids, seen = tokens(), padded("left")

    def in_pieces(model):
        cache, found = None, []
        for first, last in ((0, 5), (5, 6), (6, 9), (9, 11)):
            said = model(ids[:, first:last], attention_mask=seen[:, :last], past_key_values=cache, use_cache=True)
            cache = said.past_key_values
            found.append(said.logits)
        return torch.cat(found, 1)[seen.bool()]

    assert torch.allclose(in_pieces(ours), in_pieces(theirs), atol=1e-10)
    options = dict(max_new_tokens=8, do_sample=False, cache_implementation="static", pad_token_id=0, eos_token_id=None)
    for family in ("llama", "gemma2"):
        expected = made(family).generate(ids, attention_mask=seen, **options)
        assert torch.equal(made(family, "fovea").generate(ids, attention_mask=seen, **options), expected)


def test_packed_sequences_see_themselves():
    ids = tokens(size=(1, 11))
    positions = torch.tensor([[0, 1, 2, 3, 0, 1, 2, 0, 1, 2, 3]])
    for family in ("llama", "mistral"):
        found, expected = (
            made(family, how)(ids, position_ids=positions, use_cache=False).logits for how in ("fovea", "eager")
        )
        assert torch.allclose(found, expected, atol=1e-10)


@pytest.mark.parametrize("family", ["llama", "gemma2", "gpt_oss", "bloom", "mpt", "bert", "t5"])
def test_attentions_are_returned(family):
    inputs = dict(input_ids=tokens(), attention_mask=padded("right"), output_attentions=True)
    if family == "t5":
        inputs["labels"] = tokens()
    found, expected = (made(family, how)(**inputs) for how in ("fovea", "eager"))
    for name in ("attentions", "encoder_attentions", "decoder_attentions", "cross_attentions"):
        if getattr(expected, name, None) is not None:
            assert len(getattr(found, name)) == len(getattr(expected, name)) == 2
            for a, b in zip(getattr(found, name), getattr(expected, name)):
                assert torch.allclose(a, b, atol=1e-10)
                checked = name
    assert checked


DROPPED = {
    "llama": {"attention_dropout": 0.5},
    "gpt_oss": {"attention_dropout": 0.5},
    "bloom": {"attention_dropout": 0.5},
    "bert": {"attention_probs_dropout_prob": 0.5, "hidden_dropout_prob": 0.0},
}


@pytest.mark.parametrize("family", DROPPED)
def test_training_drops_weights(family):
    """The mean over draws is near the result without dropout, and a draw repeats with PyTorch's seed."""
    model = made(family, "fovea", **DROPPED[family], **({"num_hidden_layers": 1} if family != "bloom" else {}))
    still = model(tokens()).logits
    model.train()

    def drawn(seed):
        torch.manual_seed(seed)
        return model(tokens()).logits

    assert torch.equal(drawn(1), drawn(1)) and not torch.allclose(drawn(1), drawn(2))
    loss = model(tokens(), labels=tokens()).loss
    loss.backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())
    model.eval()
    assert torch.equal(model(tokens()).logits, still)


def test_dropout_has_the_mean_of_none():
    from fovea.torch._transformers import attention_forward

    q, k, v = (torch.randn(1, 2, 6, 8, generator=torch.Generator().manual_seed(n), dtype=F64) for n in range(3))
    layer = torch.nn.Identity()
    torch.manual_seed(0)
    draws = torch.stack([attention_forward(layer, q, k, v, None, dropout=0.25)[0] for _ in range(4000)])
    still, weights = attention_forward(layer, q, k, v, None, output_attentions=True)
    # Var of one draw: Σ w² v² · rate / (1 - rate); five of its standard errors.
    spread = ((weights**2) @ (v**2) * (0.25 / 0.75)).sqrt().transpose(1, 2)
    assert ((draws.mean(0) - still).abs() <= 5 * spread / 4000**0.5).all()


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("family", ["gemma2", "gpt_oss", "bloom", "mpt"])
def test_gradient_checkpointing(family, reentrant):
    expected = losses(made(family), padded("left"))[1]
    model = made(family, "fovea").train()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    for name in ("hidden_dropout",):
        for module in model.modules():
            if hasattr(module, name):
                setattr(module, name, 0.0)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": reentrant})
    model.get_input_embeddings().register_forward_hook(lambda layer, given, found: found.requires_grad_())
    ids, seen = tokens(), padded("left")
    before = torch.nn.functional.pad(seen, (1, 0), value=1)[:, :-1]
    labels = ids.masked_fill((seen == 0) | (before == 0), -100)
    model(input_ids=ids, attention_mask=seen, labels=labels, use_cache=False).loss.backward()
    for (name, p), b in zip(model.named_parameters(), expected):
        assert torch.allclose(p.grad, b, atol=1e-10, rtol=1e-8), name


@pytest.mark.parametrize("family, whole", [("llama", True), ("llama", False), ("bloom", True), ("bloom", False)])
def test_compiled_models_and_layers(family, whole, monkeypatch):
    """Compiled as a whole model, whose masks are dense inside the graph, or by layers, which get the masks by name."""
    monkeypatch.undo()  # of functions that torch.compile would follow
    torch._dynamo.reset()
    theirs, ours = made(family).float(), made(family, "fovea").float()
    if whole:
        run = torch.compile(ours, backend="aot_eager")
    else:
        run = ours
        for layer in ours.transformer.h if family == "bloom" else ours.model.layers:
            layer.forward = torch.compile(layer.forward, backend="aot_eager")
    for how in ("left", "holes"):
        seen = padded(how)
        rows = torch.ones(SIZE, dtype=torch.bool) if seen is None else seen.bool()
        with fovea.torch.patched(report=True) as report:
            found = run(input_ids=tokens(), attention_mask=seen).logits
        expected = theirs(input_ids=tokens(), attention_mask=seen).logits
        assert torch.allclose(found[rows], expected[rows], atol=2e-5 * expected[rows].abs().max().item())
        # A model compiled as a whole runs bloom's own attention: its masks are plain tensors there.
        assert report.served == 2 or whole and family == "bloom"


def test_bf16_is_as_near_as_eager():
    exact = made("gemma2")(tokens()).logits
    eager, ours = (made("gemma2", how).bfloat16()(tokens()).logits.double() for how in ("eager", "fovea"))
    assert (ours - exact).abs().max() <= 1.5 * (eager - exact).abs().max()


@pytest.mark.parametrize("family", ["gemma2", "bloom", "mpt", "t5"])
def test_implementations_are_set_and_restored(family, monkeypatch):
    monkeypatch.undo()
    inputs = dict(input_ids=tokens(), labels=tokens())
    model = made(family)
    expected = model(**inputs).logits
    model.set_attn_implementation("fovea")
    with fovea.torch.patched(report=True) as report:
        assert torch.allclose(model(**inputs).logits, expected, atol=1e-5)
    assert report.served == FAMILIES[family][3]
    model.set_attn_implementation("eager")
    with pytest.warns(UserWarning, match="served no call"), fovea.torch.patched(report=True) as report:
        assert torch.equal(model(**inputs).logits, expected)
    assert any(f"modeling_{family}.py" in what for what in report.elsewhere)
    fovea.torch.register_with_transformers()
    assert torch.equal(model(**inputs).logits, expected)


def test_auto_models_take_the_name():
    config = transformers.Gemma2Config(**GEMMA2)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="fovea")
    with fovea.torch.patched(report=True) as report:
        model(tokens()).logits.sum().backward()
    assert report.served == 2


OWN = {
    "gpt_neox_japanese": ("GPTNeoXJapaneseConfig", BERT, "GPTNeoXJapaneseForCausalLM", 0),
    "xglm": (
        "XGLMConfig",
        dict(vocab_size=VOCABULARY, d_model=32, ffn_dim=48, attention_heads=4, num_layers=2),
        "XGLMForCausalLM",
        0,
    ),
}


@pytest.mark.parametrize("family", OWN)
def test_families_with_attention_of_their_own_keep_it(family, monkeypatch):
    monkeypatch.undo()
    monkeypatch.setitem(FAMILIES, family, OWN[family])
    for how in ("none", "left", "holes"):
        expected = losses(made(family).float(), padded(how))
        with fovea.torch.patched(report=True) as report:
            found = losses(made(family, "fovea").float(), padded(how))
        assert report.served == 0 and any(f"modeling_{family}.py" in what for what in report.elsewhere)
        assert torch.equal(found[0], expected[0])
        assert all(a is None or torch.equal(a, b) for a, b in zip(found[1], expected[1]))


def test_masks_of_callers():
    """Four axes, of truth values or of numbers. Two axes are a mistake that would be taken as [queries, keys]."""
    from fovea.torch._transformers import attention_forward

    theirs, ours = made("llama"), made("llama", "fovea")
    visible = torch.ones(2, 1, 11, 11, dtype=torch.bool).tril()
    visible[1, 0, 5:, 2] = False
    added = torch.zeros(2, 1, 11, 11, dtype=F64).masked_fill(~visible, torch.finfo(F64).min)
    expected = theirs(tokens(), attention_mask=added).logits
    for mask in (visible, added):
        assert torch.allclose(ours(tokens(), attention_mask=mask).logits, expected, atol=1e-10)
    x = torch.ones(1, 1, 4, 8)
    layer = torch.nn.Identity()
    with pytest.raises(fovea.InvalidArgument, match="attention_mask"):
        attention_forward(layer, x, x, x, torch.ones(4, 4, dtype=torch.bool))
    with pytest.raises(fovea.InvalidArgument, match="cache"):
        attention_forward(layer, x, x, x, None, cache=object())
    with pytest.raises(fovea.InvalidArgument, match="CPU"):
        attention_forward(layer, *(3 * [x.to("meta")]), None)
    # Without a mask a module says whether it is causal.
    layer.is_causal = True
    y = torch.randn(1, 1, 4, 8, generator=torch.Generator().manual_seed(0))
    causal = fovea.attention(y, y, y, mask=fovea.Causal()).transpose(1, 2)
    assert torch.equal(attention_forward(layer, y, y, y, None)[0], causal)
    assert not torch.equal(attention_forward(layer, y, y, y, None, is_causal=False)[0], causal)


def test_importing_fovea_imports_no_transformers():
    code = "import sys, fovea.torch; fovea.torch.register_with_transformers; print('transformers' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "False"
