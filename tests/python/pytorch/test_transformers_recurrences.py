"""transformers' recurrences under `fovea.torch.patched()`: unchanged models of every family whose slow path Fovea replaces, and
their functions alone, beside what they are without it."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest
from torch_support import torch

transformers = pytest.importorskip("transformers", "5.23", reason="needs transformers 5.23 (tests/requirements-torch.txt)")

import fovea  # noqa: E402
import fovea.torch  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
transformers.logging.set_verbosity_error()

WORDS = 40
BASE = dict(
    vocab_size=WORDS,
    hidden_size=32,
    intermediate_size=48,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=128,
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=2,
    initializer_range=0.2,
)
DELTA = dict(
    BASE,
    head_dim=8,
    linear_num_key_heads=2,
    linear_num_value_heads=4,
    linear_key_head_dim=8,
    linear_value_head_dim=6,
    layer_types=["linear_attention", "full_attention"],
)
EXPERTS = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16, shared_expert_intermediate_size=16)
LATENT = dict(
    BASE,
    num_key_value_heads=4,
    moe_intermediate_size=16,
    kv_lora_rank=8,
    qk_rope_head_dim=4,
    v_head_dim=8,
    qk_nope_head_dim=8,
    num_experts_per_tok=2,
    num_local_experts=4,
    n_group=1,
    topk_group=1,
    mlp_layer_types=["dense", "dense"],
    layer_types=["linear_attention", "full_attention"],
)
MAMBA = dict(BASE, mamba_n_heads=8, mamba_d_head=8, mamba_n_groups=2, mamba_d_state=6, mamba_chunk_size=8)
LOCAL = dict(num_local_experts=4, num_experts_per_tok=2)
MAMBA1 = dict(vocab_size=WORDS, hidden_size=32, state_size=6, num_hidden_layers=2, pad_token_id=0, initializer_range=0.2)
MAMBA2 = dict(vocab_size=WORDS, hidden_size=32, num_heads=8, head_dim=8, state_size=6, n_groups=2, chunk_size=8)

# The name in transformers, its arguments, and the recurrent layers.
FAMILIES = {
    "qwen3_next": ("Qwen3NextConfig", dict(DELTA, **EXPERTS), "Qwen3NextForCausalLM", 1),
    "qwen3_5": ("Qwen3_5TextConfig", DELTA, "Qwen3_5ForCausalLM", 1),
    "qwen3_5_moe": ("Qwen3_5MoeTextConfig", dict(DELTA, **EXPERTS), "Qwen3_5MoeForCausalLM", 1),
    "olmo_hybrid": ("OlmoHybridConfig", DELTA, "OlmoHybridForCausalLM", 1),
    "kimi_linear": ("KimiLinearConfig", dict(LATENT, linear_head_dim=8, linear_num_heads=4), "KimiLinearForCausalLM", 1),
    "bailing_hybrid": ("BailingHybridConfig", dict(LATENT, head_dim=8, num_mtp_layers=0), "BailingHybridForCausalLM", 1),
    "mamba2": ("Mamba2Config", dict(MAMBA2, num_hidden_layers=2, pad_token_id=0), "Mamba2ForCausalLM", 2),
    "bamba": ("BambaConfig", dict(MAMBA, attn_layer_indices=[1]), "BambaForCausalLM", 1),
    "zamba2": (
        "Zamba2Config",
        dict(BASE, num_hidden_layers=3, layers_block_type=["mamba", "hybrid", "mamba"], mamba_d_state=6, mamba_ngroups=2,
             n_mamba_heads=8, chunk_size=8),
        "Zamba2ForCausalLM",
        3,
    ),
    "falcon_h1": ("FalconH1Config", dict(MAMBA, mamba_d_ssm=64, head_dim=8), "FalconH1ForCausalLM", 2),
    "nemotron_h": (
        "NemotronHConfig",
        dict(BASE, hybrid_override_pattern="M*", head_dim=8, mamba_num_heads=8, mamba_head_dim=8, n_groups=2,
             ssm_state_size=6, chunk_size=8),
        "NemotronHForCausalLM",
        1,
    ),
    "granitemoehybrid": (
        "GraniteMoeHybridConfig",
        dict(MAMBA, layer_types=["mamba", "attention"], shared_intermediate_size=32, **LOCAL),
        "GraniteMoeHybridForCausalLM",
        1,
    ),
    "mamba": ("MambaConfig", dict(MAMBA1), "MambaForCausalLM", 2),
    "falcon_mamba": ("FalconMambaConfig", dict(MAMBA1), "FalconMambaForCausalLM", 2),
    "jamba": (
        "JambaConfig",
        dict(BASE, attn_layer_period=2, attn_layer_offset=1, expert_layer_period=2, num_experts=2, mamba_d_state=6),
        "JambaForCausalLM",
        1,
    ),
    "zamba": (  # a scan for each of two heads in each layer
        "ZambaConfig",
        dict(BASE, num_hidden_layers=3, layers_block_type=["mamba", "hybrid", "hybrid"], mamba_d_state=6,
             num_key_value_heads=4),
        "ZambaForCausalLM",
        6,
    ),
    "lfm2": (  # a convolution alone, and no recurrence
        "Lfm2Config",
        dict(BASE, layer_types=["conv", "full_attention"], conv_L_cache=3, block_ff_dim=48),
        "Lfm2ForCausalLM",
        0,
    ),
    "minimax": (
        "MiniMaxConfig",
        dict(BASE, head_dim=8, block_size=8, layer_types=["linear_attention", "full_attention"], **LOCAL),
        "MiniMaxForCausalLM",
        1,
    ),
}
LENGTH = 37
# Both ways sum in f32. A sum over tokens and channels of one layer has at most LENGTH·32 terms, of which each rounds its
# partial sum, and there are up to 4 such sums behind one another, forward and backward.
ERROR = 4 * LENGTH * 32 * 2.0**-24


def model_of(family, **more):
    config, arguments, model, _ = FAMILIES[family]
    torch.manual_seed(0)
    return getattr(transformers, model)(getattr(transformers, config)(**arguments, **more)).eval()


def words(length=LENGTH, seed=3):
    return torch.randint(3, WORDS, (2, length), generator=torch.Generator().manual_seed(seed))


def close(a, b, extra=0.0):
    largest = float(b.abs().max()) if b.numel() else 0.0
    assert float((a - b).abs().max()) <= ERROR * largest + extra


def recurrences(report):
    """The calls of recurrences that a report counted, without those of convolutions."""
    ways = {way: count for way, count in report.served_by.items() if way.startswith("transformers, ")}
    return sum(count for way, count in ways.items() if "causal_conv1d" not in way)


def convolutions(report):
    """The calls of convolutions that a report counted."""
    return sum(count for way, count in report.served_by.items() if "causal_conv1d" in way)


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_and_gradients(family):
    model, ids = model_of(family), words()
    layers = FAMILIES[family][3]
    wanted = model(ids, use_cache=False).logits
    wanted.square().mean().backward()
    gradients = {name: x.grad for name, x in model.named_parameters() if x.grad is not None}
    model.zero_grad()
    with fovea.torch.patched(report=True) as report:
        logits = model(ids, use_cache=False).logits
    assert recurrences(report) == layers and not report.reasons
    assert family == "minimax" or convolutions(report) > 0
    close(logits, wanted)
    logits.square().mean().backward()
    largest = max(float(x.abs().max()) for x in gradients.values())
    found = {name: x.grad for name, x in model.named_parameters() if x.grad is not None}
    assert found.keys() == gradients.keys()
    for name, x in gradients.items():
        close(found[name], x, extra=ERROR * largest / 10)


@pytest.mark.parametrize("family", FAMILIES)
def test_greedy_tokens(family):
    """With a cache, a token at a time, and without one; of prompts of different lengths, padded on the left."""
    model, ids = model_of(family), words(13)
    mask = torch.ones_like(ids)
    mask[1, :4], ids[1, :4] = 0, 0
    options = dict(attention_mask=mask, max_new_tokens=6, do_sample=False, eos_token_id=None, pad_token_id=0)
    layers = FAMILIES[family][3]
    for cached in (True, False):
        wanted = model.generate(ids, use_cache=cached, **options)
        with fovea.torch.patched(report=True) as report:
            got = model.generate(ids, use_cache=cached, **options)
        assert torch.equal(got, wanted) and recurrences(report) == 6 * layers, str(report)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_cache_goes_on_elsewhere(family):
    """One that was filled in a block outside of it, and the other way round."""
    model, ids = model_of(family), words(10)
    name = "cache_params" if family in ("mamba", "mamba2", "falcon_mamba") else "past_key_values"

    def half(begin, end, block, **more):
        if not block:
            return model(ids[:, begin:end], use_cache=True, **more)
        with fovea.torch.patched(report=True) as report:
            found = model(ids[:, begin:end], use_cache=True, **more)
        assert recurrences(report) == FAMILIES[family][3] and not report.reasons
        return found

    with torch.no_grad():
        results = []
        for first, second in ((False, False), (True, False), (False, True), (True, True)):
            past = getattr(half(0, 9, first), name)
            results.append(half(9, 10, second, **{name: past}).logits)
    for other in results[1:]:
        close(other, results[0])


def test_a_compiled_model():
    """The scan and the convolution of Mamba are nodes of the graph, with their gradients."""
    model, ids = model_of("mamba"), words(11)
    wanted = model(ids, use_cache=False).logits
    wanted.square().mean().backward()
    gradients = {name: x.grad.clone() for name, x in model.named_parameters()}
    model.zero_grad()
    seen = []

    def backend(graph, inputs):
        seen.append(graph)
        return graph.forward

    with fovea.torch.patched():
        torch.compile(lambda x: model(x, use_cache=False).logits, backend=backend)(ids)
        logits = torch.compile(lambda x: model(x, use_cache=False).logits, backend="aot_eager")(ids)
    called = {str(node.target) for graph in seen for node in graph.graph.nodes}
    assert any("selective_scan" in name for name in called) and any("causal_conv" in name for name in called)
    close(logits, wanted)
    logits.square().mean().backward()
    largest = max(float(x.abs().max()) for x in gradients.values())
    for name, x in model.named_parameters():
        close(x.grad, gradients[name], extra=ERROR * largest / 10)


# Each function of each module.

NAMES = {
    "delta": ("torch_chunk_gated_delta_rule", "torch_recurrent_gated_delta_rule"),
    "kda": ("chunk_kimi_delta_attention", "recurrent_kimi_delta_attention"),
    "mamba2": ("mamba2_chunk_scan", "mamba2_selective_state_update"),
}
MODULES = {
    "delta": ("qwen3_next", "qwen3_5", "qwen3_5_moe", "olmo_hybrid", "qwen4_exp"),
    "kda": ("kimi_linear", "bailing_hybrid", "glm5_next"),
    "mamba2": ("mamba2", "bamba", "zamba2", "falcon_h1", "nemotron_h", "granitemoehybrid"),
}
FUNCTIONS = [(kind, module, name) for kind in NAMES for module in MODULES[kind] for name in NAMES[kind]]


def module_of(family):
    try:
        return importlib.import_module(f"transformers.models.{family}.modeling_{family}")
    except ImportError:
        pytest.skip(f"this transformers has no {family}")


def rand(*shape, seed, dtype=torch.float32):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype).requires_grad_()


def gates(*shape):
    return (-rand(*shape, seed=9).detach().abs()).requires_grad_()


def rows(kind, dtype=torch.float32, tokens=21):
    """(positional tensors, keyword arguments) of a chunked or a recurrent rule."""
    heads = 2 if kind == "delta" else 4
    q, k = (rand(2, tokens, heads, 8, seed=n, dtype=dtype) for n in (1, 2))
    v, beta = rand(2, tokens, 4, 6, seed=3, dtype=dtype), rand(2, tokens, 4, seed=4).detach().sigmoid().requires_grad_()
    g = gates(2, tokens, 4) if kind == "delta" else gates(2, tokens, 4, 8)
    options = dict(initial_state=rand(2, 4, 8, 6, seed=5), output_final_state=True, use_qk_l2norm_in_kernel=True)
    return (q, k, v, g, beta), options


def scanned(dtype=torch.float32, tokens=21):
    x, dt = rand(2, tokens, 8, 6, seed=1, dtype=dtype), rand(2, tokens, 8, seed=2, dtype=dtype)
    b, c = (rand(2, tokens, 2, 5, seed=n, dtype=dtype) for n in (3, 4))
    options = dict(
        chunk_size=8, D=rand(8, seed=5), dt_bias=rand(8, seed=6), dt_softplus=True, return_final_states=True,
        initial_states=rand(2, 8, 6, 5, seed=7), dt_limit=(0.01, 2.0),
    )
    return (x, dt, gates(8), b, c), options


@pytest.mark.parametrize("kind, module, name", FUNCTIONS)
def test_functions(kind, module, name):
    if name == "mamba2_selective_state_update":
        return one_step(module_of(module))
    given, options = scanned() if kind == "mamba2" else rows(kind)
    tensors = [x for x in (*given, *options.values()) if isinstance(x, torch.Tensor)]
    function = getattr(module_of(module), name)
    wanted = function(*given, **options)
    with fovea.torch.patched(report=True) as report:
        got = getattr(module_of(module), name)(*given, **options)
    assert report.served_by == {f"transformers, {module}.{name}": 1}
    assert [x.dtype for x in got] == [x.dtype for x in wanted] and got[0].is_contiguous()
    losses = [rand(*x.shape, seed=20 + n).detach() for n, x in enumerate(wanted)]
    for a, b in zip(got, wanted):
        close(a, b)
    for a, b in zip(*(torch.autograd.grad(x, tensors, losses) for x in (got, wanted))):
        close(a, b)


def one_step(module):
    (x, dt, A, b, c), options = scanned(tokens=1)
    bias, D = options["dt_bias"], options["D"]
    with torch.no_grad():
        step = (x[:, 0], dt.transpose(1, 2).expand(-1, -1, 6), A[:, None, None].expand(-1, 6, 5), b[:, 0], c[:, 0])
        more = dict(D=D[:, None].expand(-1, 6), dt_bias=bias[:, None].expand(-1, 6), dt_softplus=True, z=None)
        for turned in (False, True):  # a state of transformers, and one that Fovea has laid out
            state = options["initial_states"].detach().clone()
            ours = state.transpose(2, 3).contiguous().transpose(2, 3) if turned else state.clone()
            want = module.mamba2_selective_state_update(state, *step, **more)
            where = ours.data_ptr()
            with fovea.torch.patched(report=True) as report:
                got = module.mamba2_selective_state_update(ours, *step, **more)
            assert sum(report.served_by.values()) == 1 and not report.reasons
            close(got, want)
            close(ours, state)
            assert ours.data_ptr() == where
        channels = torch.randn(8, 6, 5).abs().neg()  # Mamba-1's
        with fovea.torch.patched(report=True) as report:
            module.mamba2_selective_state_update(state, step[0], step[1], channels, *step[3:], **more)
        assert report.passed_on == 1 and "one number for each head" in str(report)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_dtypes(dtype):
    """Both ways compute in f32 and round once."""
    module = module_of("qwen3_next")
    given, options = rows("delta", dtype)
    wanted, _ = module.torch_chunk_gated_delta_rule(*given, **options)
    with fovea.torch.patched():
        got, state = module.torch_chunk_gated_delta_rule(*given, **options)
    assert got.dtype == dtype and state.dtype == torch.float32
    unit = 2.0**-8 if dtype == torch.bfloat16 else 2.0**-11
    close(got.float(), wanted.float(), extra=unit * float(wanted.abs().max()))


@pytest.mark.parametrize("kind", NAMES)
def test_in_a_graph(kind):
    """A graph that is made inside of a block has Fovea's operator, one that is made outside has not."""
    given, options = scanned() if kind == "mamba2" else rows(kind)
    module, name = module_of(MODULES[kind][0]), NAMES[kind][0]
    graphs = []

    def backend(graph, _):
        graphs.append(str(graph.code))
        return graph

    def call(*given):
        return getattr(module, name)(*given, **options)[0]

    wanted = call(*given)
    torch._dynamo.reset()
    plain = torch.compile(call, backend=backend)(*given)
    torch._dynamo.reset()
    with fovea.torch.patched():
        got = torch.compile(call, backend=backend, fullgraph=True)(*given)
    assert "fovea.recur" in graphs[-1] and not any("fovea.recur" in code for code in graphs[:-1])
    close(plain, wanted)
    close(got, wanted)
    for a, b in zip(torch.autograd.grad(got.sum(), given), torch.autograd.grad(wanted.sum(), given)):
        close(a, b)
    torch._dynamo.reset()


@pytest.mark.parametrize("family", ["qwen3_next", "mamba2", "minimax"])
@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints(family, reentrant):
    """The recomputation of a forward pass in the block runs on Fovea, wherever backward is called."""
    model, ids = model_of(family).train(), words()
    model.gradient_checkpointing_enable({"use_reentrant": reentrant})
    model.enable_input_require_grads()
    layers = FAMILIES[family][3]
    for inside in (True, False):
        with fovea.torch.patched(report=True) as report:
            loss = model(ids, use_cache=False).logits.square().mean()
            before = recurrences(report)
            if inside:
                loss.backward()
        if not inside:
            loss.backward()
        assert before == layers
        if inside:
            assert recurrences(report) == 2 * layers
    loss = model(ids, use_cache=False).logits.square().mean()  # and one outside of it does not
    with fovea.torch.patched(report=True) as report:
        fovea.torch.scaled_dot_product_attention(*torch.ones(3, 1, 1, 2, 4))
        torch.nn.functional.scaled_dot_product_attention(*torch.ones(3, 1, 1, 2, 4))
        loss.backward()
    assert recurrences(report) == 0


def test_packed_sequences():
    """transformers' own function refuses them."""
    module = module_of("qwen3_next")
    given, options = rows("delta")
    given, starts = [x[:1] for x in given], torch.tensor([0, 9, 21], dtype=torch.int32)
    options.update(initial_state=None, cu_seqlens=starts)
    with pytest.raises(ValueError, match="packed sequences"):
        module.torch_chunk_gated_delta_rule(*given, **options)
    with fovea.torch.patched():
        out, states = module.torch_chunk_gated_delta_rule(*given, **options)
        options.update(cu_seqlens=None)
        alone, state = module.torch_chunk_gated_delta_rule(*(x[:, 9:] for x in given), **options)
    assert torch.equal(out[:, 9:], alone) and torch.equal(states[1:], state)


def test_outside_of_a_block_nothing_changes():
    module = module_of("qwen3_next")
    with fovea.torch.patched():
        pass
    ours = module.torch_chunk_gated_delta_rule
    given, options = rows("delta")
    original = ours.fovea_replaced
    want = original(*given, **options)
    for a, b in zip(ours(*given, **options), want):
        assert torch.equal(a, b)
    with torch.device("cpu"):  # another mode
        assert torch.equal(ours(*given, **options)[0], want[0])
        with fovea.torch.patched(report=True) as report:
            ours(*given, **options)
    assert report.served == 1
    with fovea.torch.patched():
        assert module.torch_chunk_gated_delta_rule is ours


def test_passed_on():
    module = module_of("mamba2")
    (x, *others), options = scanned()
    with fovea.torch.patched(report=True) as report:
        found = torch.func.vmap(lambda x: module.mamba2_chunk_scan(x, *others, **options)[0])(x[None])
    assert report.served == 0 and "inside vmap" in str(report) and found.shape == (1, *x.shape)
    module = module_of("qwen3_next")
    given, _ = rows("delta")
    meta = [x.detach().to("meta") for x in given]
    with fovea.torch.patched(report=True) as report:
        module.torch_recurrent_gated_delta_rule(*meta)
    assert report.passed_on == 1 and "got one on meta" in str(report)


def test_a_model_that_is_imported_inside_of_a_block():
    code = (
        "import torch, fovea.torch\n"
        "with fovea.torch.patched(report=True) as report:\n"
        "    from transformers import Mamba2Config, Mamba2ForCausalLM\n"
        "    config = Mamba2Config(vocab_size=9, hidden_size=8, num_heads=4, head_dim=4, state_size=2, n_groups=2, num_hidden_layers=1)\n"
        "    Mamba2ForCausalLM(config)(torch.ones(1, 3, dtype=torch.int64))\n"
        "print(report.served_by)\n"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True)
    ways = "{'transformers, mamba2.causal_conv1d_fn': 1, 'transformers, mamba2.mamba2_chunk_scan': 1}"
    assert done.stdout.strip() == ways, done.stderr[-2000:]


def test_the_package_may_be_imported_again():
    code = (
        "import sys, torch, fovea.torch\n"
        "from transformers.models.mamba2 import modeling_mamba2 as module\n"
        "def run():\n"
        "    with fovea.torch.patched(report=True) as report:\n"
        "        one = torch.ones(1, 3, 2, 4)\n"
        "        module.mamba2_chunk_scan(one, one[..., 0], -torch.ones(2), one, one, chunk_size=2)\n"
        "    return report.served\n"
        "before, original = run(), module.mamba2_chunk_scan.fovea_replaced\n"
        "for name in [name for name in sys.modules if name.split('.')[0] == 'fovea']: del sys.modules[name]\n"
        "import fovea.torch\n"
        "print(before, run(), module.mamba2_chunk_scan.fovea_replaced is original)\n"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "1 1 True", done.stderr[-2000:]


def test_threads_of_others_are_not_concerned():
    import threading

    module, found = module_of("qwen3_next"), []
    given, options = rows("delta")
    with fovea.torch.patched(report=True) as report:
        module.torch_chunk_gated_delta_rule(*given, **options)
        thread = threading.Thread(target=lambda: found.append(module.torch_chunk_gated_delta_rule(*given, **options)))
        thread.start()
        thread.join()
    assert report.served == 1
    assert torch.equal(found[0][0], module.torch_chunk_gated_delta_rule.fovea_replaced(*given, **options)[0])


@pytest.mark.parametrize("family", ["qwen3_next", "kimi_linear", "mamba2", "minimax"])
def test_autocast(family):
    """Both ways round operands to bf16, each at other places: the mean errors beside f32 are of one size."""
    model, ids = model_of(family), words()
    with torch.no_grad():
        exact = model(ids, use_cache=False).logits
        with torch.autocast("cpu", torch.bfloat16):
            theirs = model(ids, use_cache=False).logits
            with fovea.torch.patched(report=True) as report:
                ours = model(ids, use_cache=False).logits
    assert recurrences(report) == FAMILIES[family][3] and ours.dtype == theirs.dtype
    assert (ours.float() - exact).abs().mean() <= 1.5 * (theirs.float() - exact).abs().mean()
