"""What the functions with the arguments of flash-linear-attention, mamba_ssm and causal-conv1d refuse, and by which words: errors
name the argument as the caller wrote it, and show the shapes in the caller's order of axes."""

from __future__ import annotations

import ast
import importlib.metadata
import inspect
import re

import pytest

import fovea

torch = pytest.importorskip("torch")

import fovea.torch  # noqa: E402

B, T, H, HV, K, V = 2, 6, 2, 4, 5, 3


def rand(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def refused(function, given, argument, says, **wrong):
    """A call with `wrong` in place of some of the arguments is an error of `argument` that begins with these words."""
    call = getattr(fovea.torch, function)
    call(**given)
    with pytest.raises(ValueError, match=re.escape(f"{function}: {argument}: expected {says}")) as caught:
        call(**{**given, **wrong})
    assert isinstance(caught.value, fovea.InvalidArgument)


# Gates that are made from raw numbers. PyTorch would broadcast or reshape most of these.

GATED = {
    "q": rand(B, T, H, K, seed=1),
    "k": rand(B, T, H, K, seed=2),
    "v": rand(B, T, HV, V, seed=3),
    "g": rand(B, T, HV, seed=4),
    "beta": rand(B, T, HV, seed=5),
    "A_log": rand(HV, seed=6),
    "dt_bias": rand(HV, seed=7),
    "use_gate_in_kernel": True,
    "use_beta_sigmoid_in_kernel": True,
}
KDA = {**GATED, "g": rand(B, T, HV, K, seed=4), "dt_bias": rand(HV * K, seed=7)}


@pytest.mark.parametrize(
    ("argument", "wrong", "says"),
    [
        ("g", GATED["g"][:, :, :1], f"a tensor [{B}, {T}, {HV}], got torch.float32 [{B}, {T}, 1]"),
        ("g", GATED["g"][:1], f"a tensor [{B}, {T}, {HV}], got torch.float32 [1, {T}, {HV}]"),
        ("g", GATED["g"][..., None], f"a tensor [{B}, {T}, {HV}], got torch.float32 [{B}, {T}, {HV}, 1]"),
        ("g", 1.0, f"a tensor [{B}, {T}, {HV}], got float"),
        ("g", None, f"a tensor [{B}, {T}, {HV}], got NoneType"),
        ("A_log", rand(1), f"a tensor of [HV], [{HV}], got torch.float32 [1]"),
        ("A_log", rand(HV + 1), f"a tensor of [HV], [{HV}], got torch.float32 [{HV + 1}]"),
        ("A_log", rand(HV, 1), f"a tensor of [HV], [{HV}], got torch.float32 [{HV}, 1]"),
        ("A_log", 1.0, f"a tensor of [HV], [{HV}], got float"),
        ("A_log", None, "a tensor beside use_gate_in_kernel=True, got None"),
        ("dt_bias", rand(1), f"a tensor of [HV], [{HV}], got torch.float32 [1]"),
        ("dt_bias", rand(2, 2), f"a tensor of [HV], [{HV}], got torch.float32 [2, 2]"),
        ("dt_bias", 1.0, f"a tensor of [HV], [{HV}], got float"),
        ("beta", GATED["beta"][:, :, :1], f"a tensor [{B}, {T}, {HV}], got torch.float32 [{B}, {T}, 1]"),
        ("beta", 1.0, f"a tensor [{B}, {T}, {HV}], got float"),
    ],
)
def test_gates_of_gated_delta_rule(argument, wrong, says):
    refused("gated_delta_rule", GATED, argument, says, **{argument: wrong})


@pytest.mark.parametrize(
    ("argument", "wrong", "says"),
    [
        ("g", KDA["g"][:, :, :1], f"a tensor [{B}, {T}, {HV}, {K}], got torch.float32 [{B}, {T}, 1, {K}]"),
        ("g", KDA["g"][..., :1], f"a tensor [{B}, {T}, {HV}, {K}], got torch.float32 [{B}, {T}, {HV}, 1]"),
        ("g", KDA["g"][..., 0], f"a tensor [{B}, {T}, {HV}, {K}], got torch.float32 [{B}, {T}, {HV}]"),
        ("A_log", rand(2), f"a tensor of [HV], [{HV}] or [1, 1, {HV}, 1], got torch.float32 [2]"),
        ("A_log", rand(2, 2), f"a tensor of [HV], [{HV}] or [1, 1, {HV}, 1], got torch.float32 [2, 2]"),
        ("dt_bias", rand(HV), f"a tensor of [HV * K], [{HV * K}] or [{HV}, {K}], got torch.float32 [{HV}]"),
        ("dt_bias", rand(K, HV), f"a tensor of [HV * K], [{HV * K}] or [{HV}, {K}], got torch.float32 [{K}, {HV}]"),
        ("lower_bound", "a", "a number, got 'a'"),
        ("lower_bound", 5.0, "a number of at most 0, got 5.0"),
        ("lower_bound", rand(2), "a number, got torch.float32 [2]"),
    ],
)
def test_gates_of_kda(argument, wrong, says):
    refused("kda", KDA, argument, says, **{argument: wrong})


def test_parameters_of_kda_in_the_layouts_of_models():
    (want, _), table = fovea.torch.kda(**KDA), KDA["dt_bias"].view(HV, K)
    assert torch.equal(fovea.torch.kda(**{**KDA, "A_log": KDA["A_log"].view(1, 1, HV, 1), "dt_bias": table})[0], want)


# Orders. A call in the order of another of fla's functions must not run with another meaning.


def test_a_wrong_order_is_a_type_error():
    q, k, v, log = rand(1, T, H, K), rand(1, T, H, K, seed=1), rand(1, T, H, V, seed=2), -rand(1, T, H, K).abs()
    g, beta, f = log[..., 0], torch.rand(1, T, H), fovea.torch
    for call in (
        lambda: f.linear_attention(q, k, v, None, None, False, True),  # normalize of chunk_linear_attn
        lambda: f.retention(q, k, v, None, None, False, [0, 2, T]),  # cu_seqlens of chunk_retention
        lambda: f.gla(q, k, v, log, None, None, False, True),  # state_v_first of chunk_gla
        lambda: f.gla(q, k, v, log, None, None, rand(1, 1, 1, 1)),  # initial_state of fused_recurrent_gla
        lambda: f.gated_delta_rule(q, k, v, g, None, None, None, 0.5),  # scale of fused_recurrent_gated_delta_rule
        lambda: f.gated_delta_rule(q, k, v, g, beta, None, None, False, False, True),  # chunk's allow_neg_eigval
        lambda: f.kda(q, k, v, log, beta, None, None, 0.5),  # scale of fused_recurrent_kda
        lambda: f.causal_conv1d(rand(1, 2, 4), rand(2, 2), None, None, None, False, "silu"),  # final_states_out
    ):
        with pytest.raises(TypeError, match="positional argument"):
            call()


def positional(signature):
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.POSITIONAL_ONLY)
    return [name for name, parameter in signature.parameters.items() if parameter.kind in kinds]


def order_of_fla(path, name):
    """The arguments of a function of fla. Its files are parsed, because their import needs Triton."""
    try:
        files = importlib.metadata.files("fla-core")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("fla-core is not installed (./run test --full installs it)")
    file = next(file for file in files if str(file) == f"fla/ops/{path}.py")
    body = ast.parse(file.locate().read_text()).body
    return next([x.arg for x in node.args.args] for node in body if getattr(node, "name", None) == name)


@pytest.mark.parametrize(
    ("ours", "folder", "theirs"),
    [
        ("linear_attention", "linear_attn", "linear_attn"),
        *((name, name, name) for name in ("retention", "gla", "delta_rule", "gated_delta_rule", "kda", "rwkv7")),
    ],
)
def test_the_positional_arguments_are_those_of_fla(ours, folder, theirs):
    known = positional(inspect.signature(getattr(fovea.torch, ours)))
    chunk = order_of_fla(f"{folder}/chunk", f"chunk_{theirs}")
    recurrent = order_of_fla(f"{folder}/fused_recurrent", f"fused_recurrent_{theirs}")
    assert known == chunk[: len(known)]
    if ours == "gla":
        recurrent[3] = "g"  # gk there
    if ours == "gated_delta_rule":
        known = known[:-1]  # beta, which has another shape than gk
    end = len(known)
    assert known == recurrent[:end] and chunk[end : end + 1] != recurrent[end : end + 1]


# Mamba-1 and its convolution.

D, L, N = 4, 7, 3
RATE = -rand(D, N).abs() - 0.1
SCAN = {"u": rand(B, D, L), "delta": rand(B, D, L).abs(), "A": RATE, "B": rand(B, N, L), "C": rand(B, N, L)}
CONSTANT = {**SCAN, "B": rand(D, N), "C": rand(B, 2, N, L)}
STEP = {
    "state": torch.zeros(B, D, N), "x": rand(B, D), "dt": rand(B, D).abs(), "A": RATE, "B": rand(B, N), "C": rand(B, N),
}
CONV = {"x": rand(B, D, L), "weight": rand(D, 3)}
CONV_STEP = {"x": rand(B, D), "conv_state": rand(B, D, 2), "weight": rand(D, 3)}


def ways():
    """A function, arguments that fit, the argument that does not, and how its error begins."""
    of_u, per_channel = f"a tensor of the shape of u, [{B}, {D}, {L}], got ", f"a tensor of [dim], [{D}], got "
    before = f"a tensor of [batch, dim, width - 1], [{B}, {D}, 2], got "
    one, uneven = f"a tensor of [batch, dim], [{B}, {D}], got ", f"groups in a number that divides the {D} channels, got "
    for x, got in ((1.0, "float"), ("a", "str"), (rand(B, D, 1), f"torch.float32 [{B}, {D}, 1]")):
        yield "selective_scan", SCAN, "z", x, of_u + got
    yield "selective_scan", SCAN, "delta", rand(B, D, 1), f"{of_u}torch.float32 [{B}, {D}, 1]"
    yield "selective_scan", SCAN, "A", rand(D + 1, N), f"a tensor of [dim, dstate], [{D}, {N}], got torch.float32 [5, {N}]"
    yield "selective_scan", SCAN, "B", rand(1, N, L), f"a tensor of [batch, dstate, length], [{B}, {N}, {L}], got "
    yield "selective_scan", SCAN, "C", rand(B, 2, N, L), "as many groups as B has, 1, got "
    for name in ("D", "delta_bias"):
        yield "selective_scan", SCAN, name, 1.0, per_channel + "float"
        yield "selective_scan", SCAN, name, rand(D + 1), per_channel + "torch.float32 [5]"
    for groups in (0, 3):
        yield "selective_scan", CONSTANT, "C", rand(B, groups, N, L), f"{uneven}torch.float32 [{B}, {groups}, {N}, {L}]"
    yield "selective_scan", CONSTANT, "B", rand(1, N), f"a tensor of [dim, dstate], [{D}, {N}], got torch.float32 [1, {N}]"
    for name in ("x", "dt", "z"):
        yield "selective_state_update", STEP, name, rand(B, D + 1), one + f"torch.float32 [{B}, 5]"
    yield "selective_state_update", STEP, "z", 1.0, one + "float"
    yield "selective_state_update", STEP, "dt", -STEP["dt"], "steps of at least 0, got -"
    yield "selective_state_update", STEP, "A", -RATE, "numbers of at most 0, got "
    yield "selective_state_update", STEP, "A", RATE[None], "a tensor of 2 axes, got "
    yield "selective_state_update", STEP, "state", torch.zeros(B, D, 2), f"a tensor of [batch, dim, dstate], [{B}, {D}, {N}], got "
    yield "selective_state_update", STEP, "B", rand(B, N + 1), f"a tensor of [batch, dstate], [{B}, {N}], got "
    yield "selective_state_update", STEP, "B", rand(B, 0, N), uneven + f"torch.float32 [{B}, 0, {N}]"
    for name in ("D", "dt_bias"):
        yield "selective_state_update", STEP, name, "a", per_channel + "str"
    for x, got in ((rand(D, 2), f"torch.float32 [{D}, 2]"), (rand(0, D, 2), f"torch.float32 [0, {D}, 2]"),
                   (rand(B, D, 0), f"torch.float32 [{B}, {D}, 0]"), (torch.tensor(1.0), "torch.float32 []"), (1.0, "float")):
        yield "causal_conv1d", CONV, "initial_states", x, before + got
    yield "causal_conv1d", CONV, "bias", 1.0, per_channel + "float"
    yield "causal_conv1d", CONV, "weight", rand(D + 1, 3), f"a tensor of [dim, width], [{D}, 3], got torch.float32 [5, 3]"
    yield "causal_conv1d", CONV, "weight", rand(D, 0), "from 2 to 8, got 0 (width)"
    yield "causal_conv1d_update", CONV_STEP, "bias", rand(D + 1), per_channel + "torch.float32 [5]"
    yield "causal_conv1d_update", CONV_STEP, "activation", "relu", "None, 'silu' or 'swish', got 'relu'"
    yield "causal_conv1d_update", CONV_STEP, "weight", rand(D, 1), "from 2 to 8, got 1 (width)"


@pytest.mark.parametrize(("function", "given", "argument", "wrong", "says"), list(ways()))
def test_mamba_and_its_convolution(function, given, argument, wrong, says):
    refused(function, given, argument, says, **{argument: wrong})


# Packed sequences and states of fla's functions.

GLA = {"q": rand(1, T, H, K), "k": rand(1, T, H, K), "v": rand(1, T, H, V), "g": -rand(1, T, H, K).abs(), "cu_seqlens": [0, 2, T]}


@pytest.mark.parametrize("reverse", [False, True])
def test_packed_sequences(reverse):
    given, whole = {**GLA, "reverse": reverse}, "whole numbers in one axis, got "
    two = {name: GLA[name].repeat(2, 1, 1, 1) for name in "qkvg"}
    refused("gla", given, "q", f"a batch of 1 beside cu_seqlens, got torch.float32 [2, {T}, {H}, {K}]", **two)
    for wrong, got in (("a", "'a'"), (3, "3"), (torch.tensor([0.0, T]), "torch.float32 [2]"), ([[0, T]], "[[0, 6]]"),
                       (torch.tensor([False, True]), "torch.bool [2]")):
        refused("gla", given, "cu_seqlens", whole + got, cu_seqlens=wrong)
    last = "[0, 3]" if reverse else "3 as the last"
    refused("gla", given, "cu_seqlens", f"numbers that ascend from 0 to the {T} rows, got {last}", cu_seqlens=[0, 3])


@pytest.mark.parametrize("function", ["gla", "linear_attention"])
def test_states_without_their_axes(function):
    given = GLA if function == "gla" else {name: x for name, x in GLA.items() if name != "g"}
    for x in (torch.tensor(1.0), rand(2, K, V)):
        refused(function, given, "initial_state", f"[N, H, K, V], got torch.float32 {list(x.shape)}", initial_state=x)


# fovea.nn.MultiheadAttention.


@pytest.mark.parametrize(
    ("argument", "wrong", "says"),
    [
        ("mods[0]", {"mods": [3]}, "a Mod of fovea, got 3"),
        ("mods", {"mods": None}, "a sequence of fovea's mods, got None"),
        ("weight_mods[0]", {"weight_mods": ["a"]}, "a Mod of fovea, got 'a'"),
        ("normalizer", {"normalizer": "softmax"}, "a Normalizer of fovea, got 'softmax'"),
        ("normalizer", {"normalizer": fovea.Softmax}, "a value, fovea.Softmax(...), got the class Softmax"),
        ("score", {"score": "dot"}, "a Score of fovea, got 'dot'"),
        ("mask", {"mask": "causal"}, "a mask of fovea, "),
        ("num_kv_heads", {"num_kv_heads": "1"}, "a whole number, got '1'"),
        ("num_kv_heads", {"num_kv_heads": 1.0}, "a whole number, got 1.0"),
        ("num_kv_heads", {"num_kv_heads": 3}, "a divisor of num_heads, 2, got 3"),
    ],
)
def test_the_layer_refuses_when_it_is_made(argument, wrong, says):
    import fovea.nn

    with pytest.raises(fovea.InvalidArgument, match=re.escape(f"MultiheadAttention: {argument}: expected {says}")):
        fovea.nn.MultiheadAttention(8, 2, **wrong)


def test_the_layer_takes_one_mod_alone():
    import fovea.nn

    assert fovea.nn.MultiheadAttention(8, 2, mods=fovea.SoftCap(3)).mods == (fovea.SoftCap(3),)


@pytest.mark.parametrize(
    ("argument", "wrong", "says"),
    [
        ("attn_mask", {"attn_mask": torch.ones(5, 5).bool().numpy()}, "a tensor of truth values or floating-point numbers, got bool [5, 5]"),
        ("attn_mask", {"attn_mask": torch.ones(5, 5).int()}, "a tensor of truth values or floating-point numbers, got torch.int32 [5, 5]"),
        ("key_padding_mask", {"key_padding_mask": torch.ones(2, 5).int()}, "a tensor of truth values or floating-point numbers, got torch.int32 [2, 5]"),
        ("key_padding_mask", {"key_padding_mask": [[True]]}, "a tensor of truth values or floating-point numbers, got list"),
        ("value", {"value": torch.ones(2, 4, 8)}, "[2, 5] in front of vdim, as the key has, got torch.float32 [2, 4, 8]"),
        ("key", {"key": torch.ones(1, 5, 8), "value": torch.ones(1, 5, 8)}, "the query's batch of 2, got torch.float32 [1, 5, 8]"),
    ],
)
def test_the_layer_refuses_a_call(argument, wrong, says):
    import fovea.nn

    x = torch.ones(2, 5, 8)
    layer = fovea.nn.MultiheadAttention(8, 2, batch_first=True)
    with pytest.raises(fovea.InvalidArgument, match=re.escape(f"MultiheadAttention: {argument}: expected {says}")):
        layer(**{"query": x, "key": x, "value": x, **wrong})


# Gradients that a number or an output has not.

TENSOR = rand(1, 2, 4, 8)


@pytest.mark.parametrize(
    ("name", "spec"),
    [
        ("attention: scale", lambda number: {"scale": number}),
        ("SoftCap: cap", lambda number: {"mods": [fovea.SoftCap(number)]}),
        ("Temperature: value", lambda number: {"mods": [fovea.Temperature(number)]}),
        ("Sigmoid: bias", lambda number: {"normalizer": fovea.Sigmoid(number)}),
    ],
)
def test_a_number_that_wants_a_gradient(name, spec):
    number = torch.tensor(2.0, requires_grad=True)
    with pytest.raises(fovea.InvalidArgument, match=f"{name}: expected a number, or a tensor that wants no gradient"):
        fovea.attention(TENSOR, TENSOR, TENSOR, **spec(number))
    with torch.no_grad():
        got = fovea.attention(TENSOR, TENSOR, TENSOR, **spec(number))
    assert torch.equal(got, fovea.attention(TENSOR, TENSOR, TENSOR, **spec(2.0)))


def test_an_output_that_wants_a_gradient():
    out = torch.zeros_like(TENSOR).requires_grad_()
    step = fovea.plan(num_query_heads=2, query_len=4, head_dim=8)
    cache = fovea.KvCache([fovea.CacheLayer(2, 8)])
    sequence = cache.start()
    cache.reserve(sequence, 4)
    cache.append(0, sequence, TENSOR, TENSOR)
    for call in (
        lambda: fovea.attention(TENSOR, TENSOR, TENSOR, out=out),
        lambda: step(TENSOR, TENSOR, TENSOR, out=out),
        lambda: fovea.attention(TENSOR, cache=cache[0], sequences=[sequence], out=out),
    ):
        with pytest.raises(fovea.InvalidArgument, match="attention: out: expected a tensor that wants no gradient"):
            call()
        with torch.no_grad():
            assert call() is out


def test_an_output_of_another_library_is_noted():
    """PyTorch refuses a backward pass that needs what the output held before."""
    query = TENSOR.numpy()
    out = torch.ones(1, 2, 4, 8)
    product = (out * torch.ones(8, requires_grad=True)).sum()
    fovea.attention(query, query, query, out=out)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.backward()


def test_tensors_beside_a_query_of_numpy():
    query = TENSOR.numpy()
    slopes = torch.ones(2, requires_grad=True)
    with pytest.raises(fovea.InvalidArgument, match=r"mods\[0\].slope: expected an array that wants no gradient, or all arrays of"):
        fovea.attention(query, query, query, mods=[fovea.AlibiBias(slopes)])


def test_tensors_without_values():
    slopes = torch.ones(2, device="meta")
    bias = fovea.AlibiBias(slopes)
    assert repr(bias) == "fovea.AlibiBias(<torch.float32 [2]>)"
    assert bias == fovea.AlibiBias(slopes) and bias != fovea.AlibiBias(slopes.clone())
    assert repr(fovea.Additive(None, None, slopes, slopes)).count("<torch.float32 [2]>") == 2
    with pytest.raises(fovea.InvalidArgument, match="mask: expected an array in the CPU's memory, got one on meta"):
        fovea.attention(TENSOR, TENSOR, TENSOR, mask=torch.ones(4, 4, dtype=torch.bool, device="meta"))


# Functions with PyTorch's arguments.


@pytest.mark.parametrize("options", [{"scale": 0.5}, {"dropout_p": 0.0}])
def test_numbers_that_pytorch_takes(options):
    import numpy as np

    ((name, number),) = options.items()
    ours, theirs = fovea.torch.scaled_dot_product_attention, torch.nn.functional.scaled_dot_product_attention
    want = ours(TENSOR, TENSOR, TENSOR, **options)
    for given in (np.float32(number), np.float64(number), torch.tensor(number)):
        theirs(TENSOR, TENSOR, TENSOR, **{name: given})
        assert torch.equal(ours(TENSOR, TENSOR, TENSOR, **{name: given}), want)
    if name == "dropout_p":
        with pytest.raises(fovea.InvalidArgument, match="dropout_p: expected a number where calls are traced or transformed"):
            torch.func.vmap(lambda p: ours(TENSOR, TENSOR, TENSOR, dropout_p=p))(torch.zeros(2))
    with pytest.raises(TypeError):
        theirs(TENSOR, TENSOR, TENSOR, **{name: torch.tensor(number, requires_grad=True)})
    with pytest.raises(fovea.InvalidArgument, match=name):
        ours(TENSOR, TENSOR, TENSOR, **{name: torch.tensor(number, requires_grad=True)})


@pytest.mark.parametrize(
    ("argument", "wrong", "says"),
    [
        *(("seed", {"seed": seed}, says) for seed, says in ((None, "that of the call"), ("a", "a whole number"), (1.5, "a whole number"),
                                                            (-1, "a number in [0, 2^64)"), (2**70, ""))),
        ("advantage", {"advantage": None}, "a tensor of PyTorch"),
        ("advantage", {"advantage": torch.ones(1, 2, 3)}, "a number for each row, [1, 2, 4], got torch.float32 [1, 2, 3]"),
        ("mods[0]", {"mods": [3]}, "a Mod of fovea, got 3"),
    ],
)
def test_score_function(argument, wrong, says):
    given = {"query": TENSOR, "key": TENSOR, "value": TENSOR, "advantage": torch.ones(1, 2, 4), "seed": 1}
    refused("score_function", given, argument, says, **wrong)


# fovea.recurrence and fovea.causal_conv, whose calls with gradients are operators.

LEAF = rand(1, 2, 4, 8).requires_grad_()


@pytest.mark.parametrize("leaf", [LEAF, LEAF.detach()], ids=["gradients", "none"])
@pytest.mark.parametrize(
    ("argument", "wrong", "says"),
    [
        ("sequence_starts", "ab", "a sequence of whole numbers, got 'ab'"),
        ("sequence_starts", [0.0, 4.0], "a whole number, got 0.0"),
        ("sequence_starts", [0, 2**64], "a whole number in "),
        ("sequence_starts", [], "numbers from 0 to the number of tokens, got none"),
        ("present", "ab", "an array of truth values, got str"),
        ("present", [[1.0]], "an array of truth values, got list"),
    ],
)
def test_tokens_that_are_no_tensors(leaf, argument, wrong, says):
    with pytest.raises(fovea.InvalidArgument, match=re.escape(f"recurrence: {argument}: expected {says}")):
        fovea.recurrence(leaf, leaf, leaf, **{argument: wrong})
    with pytest.raises(fovea.InvalidArgument, match=re.escape(f"causal_conv: {argument}: expected {says}")):
        fovea.causal_conv(leaf[0], torch.ones(8, 3), **{argument: wrong})


def test_tokens_in_lists():
    starts, present = [0, 1, 4], [[1, 0, 1, True]]
    wanted = fovea.recurrence(*[LEAF.detach()] * 3, sequence_starts=starts, present=present)
    for given in (starts, tuple(starts), iter(starts), torch.tensor(starts)):
        assert torch.equal(fovea.recurrence(LEAF, LEAF, LEAF, sequence_starts=given, present=present), wanted)


def test_results_of_another_library():
    import numpy as np

    query = LEAF.detach().numpy()
    for name, shape in (("out", (1, 2, 4, 8)), ("final_state", (1, 2, 8, 8))):
        for wrong in (torch.zeros(shape, requires_grad=True), np.ma.masked_array(np.zeros(shape, np.float32), True)):
            with pytest.raises(fovea.InvalidArgument, match=f"recurrence: {name}: expected"):
                fovea.recurrence(query, query, query, **{name: wrong})
        noted = torch.ones(shape)
        product = (noted * torch.ones(8, requires_grad=True)).sum()
        fovea.recurrence(query, query, query, **{name: noted})
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            product.backward()
    tables = fovea.RopeTables(torch.ones(9, 4, requires_grad=True), torch.ones(9, 4))
    with pytest.raises(fovea.InvalidArgument, match="rotate: cos: expected an array that wants no gradient"):
        fovea.rotate(query, tables)
