"""The functions with the arguments of flash-linear-attention against loops over tokens, and against fla's own naive files where
fla-core is installed."""

from __future__ import annotations

import doctest
import importlib.metadata
import importlib.util
import math
import sys
import types

import pytest

import fovea

torch = pytest.importorskip("torch")

from torch_support import F64, outer, rand  # noqa: E402

import fovea.torch  # noqa: E402

B, T, H, HV, K, V = 2, 21, 2, 4, 5, 3


def gate(*shape, seed=9):
    return (-rand(*shape, seed=seed, grad=False).abs()).requires_grad_()


def scan(q, k, v, scale, state, step):
    """Tensors [B, T, heads, dim]; step(t, state, k, v) is the next state. (o, state)."""
    group = v.shape[2] // q.shape[2]
    q, k = (x.repeat_interleave(group, 2) for x in (q, k))
    outputs = []
    for t in range(q.shape[1]):
        state = step(t, state, k[:, t], v[:, t])
        outputs.append(scale * torch.einsum("bhkv,bhk->bhv", state, q[:, t]))
    return torch.stack(outputs, 1), state


def delta(state, k, v, beta):
    return state + outer(k, beta[..., None] * (v - torch.einsum("bhkv,bhk->bhv", state, k)))


def normal(x):
    return x / (x.square().sum(-1, keepdim=True) + 1e-6).sqrt()


def cases():
    """name → (function, tensors, reference of them and the initial state, options)."""
    q, k, v = rand(B, T, H, K, seed=1), rand(B, T, H, K, seed=2), rand(B, T, H, V, seed=3)
    grouped = rand(B, T, HV, V, seed=3)
    beta, betas = (torch.rand(B, T, n, dtype=F64).requires_grad_() for n in (H, HV))
    scale = K**-0.5

    def linear(q, k, v, s):
        return scan(q, k, v, scale, s, lambda t, s, k, v: s + outer(k, v))

    def retention(q, k, v, s):
        gamma = 1 - 2.0 ** (-5 - torch.arange(H, dtype=F64))[:, None, None]
        return scan(q, k, v, scale, s, lambda t, s, k, v: gamma * s + outer(k, v))

    def gla(q, k, v, g, s):
        return scan(q, k, v, 0.7, s, lambda t, s, k, v: g[:, t].exp()[..., None] * s + outer(k, v))

    def deltas(q, k, v, beta, s):
        return scan(normal(q), normal(k), v, scale, s, lambda t, s, k, v: delta(s, k, v, beta[:, t]))

    def gated(q, k, v, g, beta, s):
        q, k = normal(q), normal(k)
        return scan(q, k, v, scale, s, lambda t, s, k, v: delta(g[:, t].exp()[..., None, None] * s, k, v, beta[:, t]))

    def kda(q, k, v, g, beta, s):
        q, k = normal(q), normal(k)
        return scan(q, k, v, scale, s, lambda t, s, k, v: delta(g[:, t].exp()[..., None] * s, k, v, beta[:, t]))

    def rwkv7(r, w, k, v, a, b, s):
        def step(t, s, k, v):
            read = torch.einsum("bhkv,bhk->bhv", s, a[:, t])
            return w[:, t].exp()[..., None] * s + outer(b[:, t], read) + outer(k, v)

        return scan(r, k, v, 1.0, s, step)

    norm = {"use_qk_l2norm_in_kernel": True}
    short = 0.4 * rand(B, T, H, K, seed=5, grad=False)
    return {
        "linear_attention": (fovea.torch.linear_attention, (q, k, v), linear, {"normalize": False}),
        "retention": (fovea.torch.retention, (q, k, v), retention, {}),
        "gla": (fovea.torch.gla, (q, k, v, gate(B, T, H, K)), gla, {"scale": 0.7}),
        "delta_rule": (fovea.torch.delta_rule, (q, k, v, beta), deltas, norm),
        "gated_delta_rule": (fovea.torch.gated_delta_rule, (q, k, grouped, gate(B, T, HV), betas), gated, norm),
        "kda": (fovea.torch.kda, (q, k, grouped, gate(B, T, HV, K), betas), kda, norm),
        "rwkv7": (
            fovea.torch.rwkv7,
            (q, gate(B, T, H, K), k, v, (-short).requires_grad_(), short.clone().requires_grad_()),
            rwkv7,
            {},
        ),
    }


NAMES = list(cases())


@pytest.mark.parametrize("name", NAMES)
def test_equals_a_loop_over_tokens(name):
    """With gradients of every tensor. Both are sums in f64 of at most K·T terms of size 1, times states up to 100."""
    ours, given, reference, options = cases()[name]
    state = rand(B, given[2].shape[2] if name != "rwkv7" else H, K, V, seed=8)
    wanted = reference(*given, state)
    got = ours(*given, initial_state=state, output_final_state=True, **options)
    for a, b in zip(got, wanted):
        assert a.shape == b.shape
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-11)
    inputs = (*given, state)
    losses = [rand(*x.shape, seed=20 + n, grad=False) for n, x in enumerate(wanted)]
    found, want = (torch.autograd.grad(x, inputs, losses) for x in (got, wanted))
    for a, b in zip(found, want):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)
    alone, nothing = ours(*given, initial_state=state, **options)
    assert nothing is None and torch.equal(alone, got[0])


@pytest.mark.parametrize("name", NAMES)
def test_packed(name):
    ours, given, _, options = cases()[name]
    given = [x[:1].detach() for x in given]
    heads = given[2].shape[2] if name != "rwkv7" else H
    states = rand(2, heads, K, V, seed=8, grad=False)
    starts = torch.tensor([0, 9, T])
    o, final = ours(*given, initial_state=states, output_final_state=True, cu_seqlens=starts, **options)
    for n, (begin, end) in enumerate(((0, 9), (9, T))):
        part = [x[:, begin:end] for x in given]
        alone, state = ours(*part, initial_state=states[n : n + 1], output_final_state=True, **options)
        assert torch.equal(o[:, begin:end], alone) and torch.equal(final[n : n + 1], state)


@pytest.mark.parametrize("name", ["linear_attention", "retention", "gla"])
@pytest.mark.parametrize("starts", [None, [0, 9, T]])
def test_reverse(name, starts):
    ours, given, _, options = cases()[name]
    given = [x[:1].detach() for x in given]
    count = 1 if starts is None else 2
    states = rand(count, H, K, V, seed=8, grad=False)
    options = {**options, "initial_state": states, "output_final_state": True}
    o, final = ours(*given, reverse=True, cu_seqlens=starts, **options)
    for n, (begin, end) in enumerate(zip(starts or [0], (starts or [0, T])[1:])):
        part = [x[:, begin:end].flip(1) for x in given]
        alone, state = ours(*part, **{**options, "initial_state": states[n : n + 1]})
        assert torch.equal(o[:, begin:end].flip(1), alone) and torch.equal(final[n : n + 1], state)


@pytest.mark.parametrize("name", ["retention", "gla", "gated_delta_rule", "kda"])
def test_state_v_first(name):
    ours, given, _, options = cases()[name]
    state = rand(B, given[2].shape[2], K, V, seed=8, grad=False)
    o, final = ours(*given, initial_state=state, output_final_state=True, **options)
    options["state_v_first"] = True
    turned, turned_final = ours(*given, initial_state=state.transpose(2, 3), output_final_state=True, **options)
    assert torch.equal(turned, o) and torch.equal(turned_final.transpose(2, 3), final)


def test_linear_attention_is_normalised():
    q, k, v = (x.detach().exp() for x in (rand(B, T, H, K, seed=1), rand(B, T, H, K, seed=2), rand(B, T, H, V)))
    o, (values, sums) = fovea.torch.linear_attention(q, k, v, output_final_state=True)
    assert values.shape == (B, H, K, V) and sums.shape == (B, 1, H, K)
    torch.testing.assert_close(sums, k.sum(1, keepdim=True))
    weights = torch.einsum("bihk,bjhk->bhij", q, k).tril()
    want = torch.einsum("bhij,bjhv->bihv", weights / weights.sum(-1, keepdim=True), v)
    torch.testing.assert_close(o, want, rtol=1e-8, atol=1e-8)  # 1e-10 beside sums of about 1
    first, state = fovea.torch.linear_attention(q[:, :16], k[:, :16], v[:, :16], output_final_state=True)
    rest, _ = fovea.torch.linear_attention(q[:, 16:], k[:, 16:], v[:, 16:], initial_state=state)
    torch.testing.assert_close(torch.cat([first, rest], 1), o)
    only = fovea.torch.linear_attention(q, k, v, initial_state=values)[0]
    assert only.shape == o.shape and not torch.equal(only, o)


def test_gates_in_the_kernel():
    q, k, v = rand(B, T, H, K, seed=1), rand(B, T, H, K, seed=2), rand(B, T, HV, V, seed=3)
    raw, log, bias = rand(B, T, HV, seed=4), rand(HV, seed=5), rand(HV, seed=6)
    logits = rand(B, T, HV, seed=7)
    norm = {"use_qk_l2norm_in_kernel": True}
    got = fovea.torch.gated_delta_rule(
        q, k, v, raw, logits, use_gate_in_kernel=True, A_log=log, dt_bias=bias, use_beta_sigmoid_in_kernel=True,
        allow_neg_eigval=True, **norm,
    )[0]
    g = -log.exp() * torch.nn.functional.softplus(raw + bias)
    torch.testing.assert_close(got, fovea.torch.gated_delta_rule(q, k, v, g, 2 * logits.sigmoid(), **norm)[0])
    raw, bias = rand(B, T, HV, K, seed=4), rand(HV * K, seed=6)
    options = {"use_gate_in_kernel": True, "dt_bias": bias, **norm}
    shifted = raw + bias.view(HV, K)
    for more, g in (
        ({"A_log": log}, -log.exp()[:, None] * torch.nn.functional.softplus(shifted)),
        ({"A_log": log, "lower_bound": -5.0}, -5 * torch.sigmoid(log.exp()[:, None] * shifted)),
        ({"lower_bound": -5.0}, -5 * torch.sigmoid(shifted)),
    ):
        got = fovea.torch.kda(q, k, v, raw, logits.sigmoid(), **options, **more)[0]
        torch.testing.assert_close(got, fovea.torch.kda(q, k, v, g, logits.sigmoid(), **norm)[0])
    assert torch.equal(
        fovea.torch.gated_delta_rule(q, k, v, **norm)[0],
        fovea.torch.gated_delta_rule(q, k, v, torch.zeros(B, T, HV), torch.ones(B, T, HV), **norm)[0],
    )


def test_in_bf16():
    """Rounded inputs of f64, whose states and sums are f32.

    A kernel may round the operands of its products to bf16 once more. So the bound is twice what the result moves by
    if each input is off by a rounding, 2^-8 of it.
    """
    ours, given, reference, options = cases()["gated_delta_rule"]
    small = [x.detach().bfloat16() for x in given]
    options["use_qk_l2norm_in_kernel"] = False
    small[1] = (small[1] / 4).contiguous()
    got, state = ours(*small, output_final_state=True, **options)
    exact = [x.double() for x in small]
    want, _ = ours(*exact, output_final_state=True, **options)
    off = [x * (1 + 2**-8 * torch.sign(rand(*x.shape, seed=n, grad=False))) for n, x in enumerate(exact)]
    moved = (ours(*off, **options)[0] - want).abs().max().item()
    assert got.dtype == torch.bfloat16 and state.dtype == torch.float32
    torch.testing.assert_close(got.double(), want, rtol=0, atol=2 * moved)


@pytest.mark.parametrize("name", NAMES)
def test_in_a_graph(name):
    ours, given, _, options = cases()[name]

    def call(*given):
        return ours(*given, output_final_state=True, **options)

    graph = torch.compile(call, backend="aot_eager", fullgraph=True)
    for a, b in zip(graph(*given), call(*given)):
        torch.testing.assert_close(a, b, rtol=1e-13, atol=1e-13)


def test_options_of_gpus_change_nothing():
    ours, given, _, options = cases()["gated_delta_rule"]
    plain = ours(*given, **options)[0]
    speed = {"chunk_size": 32, "cu_seqlens_cpu": None, "chunk_indices": None, "disable_recompute": True, "cp_context": None}
    assert torch.equal(ours(*given, **options, **speed)[0], plain)


# Refused.


def test_refused():
    q, k, v = rand(1, 4, 2, 4), rand(1, 4, 2, 4), rand(1, 4, 2, 3)
    g, f = -rand(1, 4, 2, grad=False).abs(), fovea.torch
    for call, says in (
        (lambda: f.gla(q, k, v, g), r"gla: g: expected a tensor \[1, 4, 2, 4\], got torch.float64 \[1, 4, 2\]"),
        (lambda: f.gla(q, k, v, g[..., None].expand(1, 4, 2, 4).abs()), "gla: g: expected logarithms of decays, at most 0"),
        (lambda: f.gla(q, k, v[:, :3], q), "gla: v: expected 1 entries of 4 tokens with 2 heads"),
        (lambda: f.gla(q, k[..., :3], v, q), "gla: q: expected the shape of k"),
        (lambda: f.gla(q[0], k[0], v[0], q), r"gla: q: expected \[B, T, H, dim\]"),
        (lambda: f.gla(3, k, v, q), "gla: q: expected a tensor of PyTorch"),
        (lambda: f.kda(q, k, v[:, :, :1], q), "kda: v: expected .* heads in a multiple of 2"),
        (lambda: f.delta_rule(q, k, v.repeat(1, 1, 2, 1)), "delta_rule: v"),
        (lambda: f.delta_rule(q, k, v, g[:, :3]), "delta_rule: beta"),
        (lambda: f.gated_delta_rule(q, k, v, g, initial_state=rand(1, 2, 3, 4)), "gated_delta_rule: initial_state: expected f64"),
        (lambda: f.gated_delta_rule(q, k, v, g, cu_seqlens=[0, 3]), "gated_delta_rule: cu_seqlens"),
        (lambda: f.gated_delta_rule(q, k, v, g, head_first=True), "head_first"),
        (lambda: f.gated_delta_rule(q, k, v, g, cp_context=3), "cp_context: expected None"),
        (lambda: f.gated_delta_rule(q, k, v, g, use_gate_in_kernel=True), "A_log"),
        (lambda: f.gated_delta_rule(q, k, v, g, allow_neg_eigval=True), "allow_neg_eigval"),
        (lambda: f.linear_attention(q, k, v, initial_state=(q, k, v)), "initial_state"),
        (lambda: f.linear_attention(q, k, v, initial_state=(rand(1, 2, 4, 3), rand(1, 2, 4, 3))), "sums of keys"),
        (lambda: f.rwkv7(q, q, k, v, q, q), "rwkv7: w: expected logarithms of decays"),
    ):
        with pytest.raises(fovea.InvalidArgument, match=says):
            call()
    with pytest.raises(TypeError, match="unexpected keyword argument 'scael'"):
        f.gla(q, k, v, q, scael=1)


@pytest.mark.parametrize("module", ["_fla", "_ssd"])
def test_examples_in_docstrings(module):
    found = importlib.import_module(f"fovea.torch.{module}")
    result = doctest.testmod(found, extraglobs={"fovea": fovea})
    assert result.attempted >= 4 and result.failed == 0


# fla's own naive functions. The package itself needs Triton, so their files are loaded by path.


def naive(monkeypatch, path, name):
    try:
        files = importlib.metadata.files("fla-core")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("fla-core is not installed (./run test --full installs it)")
    file = next(file for file in files if str(file) == f"fla/ops/{path}")
    if "einops" not in sys.modules:  # what is called here does not use it
        unused = types.ModuleType("einops")
        unused.rearrange = None
        monkeypatch.setitem(sys.modules, "einops", unused)
    spec = importlib.util.spec_from_file_location("naive_of_fla", file.locate())
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name)


def test_fla_agrees(monkeypatch):
    """fla computes in f32: sums of K·T = 105 terms over states below 10 are off by at most 105·10·2^-24 = 6e-5."""
    every = cases()
    limit = {"rtol": 1e-4, "atol": 1e-4}

    def of(name, **more):
        function, given, _, options = every[name]
        found = [x.detach().float() for x in given]
        if "use_qk_l2norm_in_kernel" in options:
            options = {k: x for k, x in options.items() if k != "use_qk_l2norm_in_kernel"}
            found[:2] = normal(found[0]), normal(found[1])
        return found, function(*found, output_final_state=True, **options, **more)

    (q, k, v, g, beta), ours = of("gated_delta_rule")
    wide = [x.repeat_interleave(2, 2) for x in (q, k)]
    theirs = naive(monkeypatch, "gated_delta_rule/naive.py", "naive_recurrent_gated_delta_rule")
    for a, b in zip(ours, theirs(*wide, v, beta, g, output_final_state=True)):
        torch.testing.assert_close(a, b, **limit)
    (q, k, v, g, beta), ours = of("kda")
    theirs = naive(monkeypatch, "kda/naive.py", "naive_recurrent_kda")
    for a, b in zip(ours, theirs(*(x.repeat_interleave(2, 2) for x in (q, k)), v, g, beta, output_final_state=True)):
        torch.testing.assert_close(a, b, **limit)
    (q, k, v, g), _ = of("gla")
    ours = fovea.torch.gla(q, k, v, g, output_final_state=True)
    for a, b in zip(ours, naive(monkeypatch, "gla/naive.py", "naive_recurrent_gla")(q, k, v, g, output_final_state=True)):
        torch.testing.assert_close(a, b, **limit)
    (q, k, v), ours = of("retention")
    first = (x.transpose(1, 2) for x in (q, k, v))
    torch.testing.assert_close(ours[0], naive(monkeypatch, "retention/naive.py", "naive_retention")(*first).transpose(1, 2), **limit)
    (r, w, k, v, a, b), _ = of("rwkv7")
    ours = fovea.torch.rwkv7(r, w, k, v, a, b, scale=None, output_final_state=True)
    theirs = naive(monkeypatch, "generalized_delta_rule/dplr/naive.py", "dplr_recurrence")
    o, state = theirs(*(x.transpose(1, 2) for x in (r, k, v, a, b, w)))
    torch.testing.assert_close(ours[0], o.transpose(1, 2), **limit)
    torch.testing.assert_close(ours[1], state, **limit)
    assert math.isfinite(float(state.abs().max()))
