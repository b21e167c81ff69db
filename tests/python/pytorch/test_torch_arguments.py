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
