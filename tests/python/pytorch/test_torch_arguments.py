"""What the functions with the arguments of flash-linear-attention, mamba_ssm and causal-conv1d refuse, and by which words: errors
name the argument as the caller wrote it, and show the shapes in the caller's order of axes."""

from __future__ import annotations

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
