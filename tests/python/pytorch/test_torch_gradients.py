"""Gradients of every trainable part, in float64 by differences."""

import pytest
from torch_support import F64, plain, tensors, torch

import fovea


def checked(call, *arrays):
    assert torch.autograd.gradcheck(call, arrays, eps=1e-6, atol=1e-7, rtol=1e-5)


B, H, G, N, M, D, E = 2, 4, 2, 3, 5, 4, 3


def qkv(seed=0):
    return tensors((B, H, N, D), (B, G, M, D), (B, G, M, E), grad=True, seed=seed)


def params(*shapes, seed=7):
    return tensors(*shapes, grad=True, seed=seed)


SCORES = {
    "dot": (lambda: fovea.Dot(), []),
    "scaled": (lambda: fovea.ScaledDot(), []),
    "bilinear": (lambda W: fovea.Bilinear(W), [(D, D)]),
    "biaffine": (lambda W, b: fovea.Biaffine(W, b), [(H, D, D), (D,)]),
    "bilinear by head": (lambda W: fovea.Bilinear(W), [(H, D, D)]),
    "additive": (lambda W, U, v, b: fovea.Additive(W, U, v, b), [(6, D), (6, D), (6,), (6,)]),
    "additive, projected": (lambda v: fovea.Additive(None, None, v), [(D,)]),
    "concat": (lambda W, v: fovea.Concat(W, v), [(6, 2 * D), (6,)]),
    "low rank": (lambda W, U: fovea.LowRankBilinear(W, U), [(3, D), (3, D)]),
    "coverage": (lambda W, U, v, w: fovea.Coverage(W, U, v, w), [(6, D), (6, D), (6,), (6,)]),
}


@pytest.mark.parametrize("name", SCORES)
def test_scores(name):
    make, shapes = SCORES[name]
    checked(
        lambda q, k, v, *rest: fovea.attention(q, k, v, score=make(*rest), mask=fovea.Causal()),
        *qkv(),
        *params(*shapes),
    )


def test_location():
    q, _, v = qkv()
    checked(lambda q, v, W: fovea.attention(q, None, v, score=fovea.Location(W)), q, v, *params((M, D)))


MODS = {
    "soft-cap": (lambda: fovea.SoftCap(2.0), []),
    "alibi": (lambda s: fovea.AlibiBias(s), [(H,)]),
    "alibi, one slope": (lambda s: fovea.AlibiBias(s), [()]),
    "dense": (lambda b: fovea.DenseBias(b), [(B, H, N, M)]),
    "dense, shared": (lambda b: fovea.DenseBias(b), [(H, 1, M)]),
    "relative": (lambda t: fovea.RelativeBias(t, 8), [(H, 6)]),
    "relative, causal": (lambda t: fovea.RelativeBias(t, 8, "causal"), [(6,)]),
    "relative key": (lambda t: fovea.RelativeKeyBias(t), [(B, H, N, 5)]),
    "temperature": (lambda: fovea.Temperature(0.7), []),
    "learned temperature": (lambda t: fovea.LearnedTemperature(t.exp()), [(H,)]),
}


@pytest.mark.parametrize("name", MODS)
def test_mods(name):
    make, shapes = MODS[name]
    checked(
        lambda q, k, v, *rest: fovea.attention(q, k, v, mods=[fovea.SoftCap(5.0), make(*rest)]),
        *qkv(),
        *params(*shapes),
    )


def test_forget_gate():
    q, k, v = tensors((B, H, M, D), (B, H, M, D), (B, H, M, E), grad=True)
    (f,) = params((B, H, M))

    def call(q, k, v, f):
        gate = fovea.ForgetGate.of(torch.nn.functional.logsigmoid(f))
        return fovea.attention(q, k, v, mods=[gate], mask=fovea.Causal())

    checked(call, q, k, v, f)


def test_weight_mod():
    (c,) = params((B, H, N))
    checked(
        lambda q, k, v, c: fovea.attention(q, k, v, weight_mods=[fovea.LocalGaussian(1.5, c + 2)]), *qkv(), c
    )


NORMALIZERS = {
    "sink": (lambda s: fovea.SoftmaxWithSink(s), [(H,)]),
    "scalable": (lambda c: fovea.ScalableSoftmax(c), [(H,)]),
    "sigmoid": (lambda: fovea.Sigmoid(-1.0), []),
    "sparsemax": (lambda: fovea.Sparsemax(), []),
    "entmax": (lambda: fovea.Entmax(1.5), []),
    "adaptive-entmax": (lambda a: fovea.AdaptiveEntmax(a), [(H,)]),
    "argmax": (lambda: fovea.HardArgmax(), []),
    "chain": (lambda t: fovea.LinearChain(t), [(H, 2, 2)]),
}


@pytest.mark.parametrize("name", NORMALIZERS)
def test_normalizers(name):
    make, shapes = NORMALIZERS[name]
    checked(
        lambda q, k, v, *rest: fovea.attention(q, k, v, normalizer=make(*rest)), *qkv(), *params(*shapes)
    )


def test_dropout_keeps_its_decisions():
    checked(lambda q, k, v: fovea.attention(q, k, v, dropout=0.4, seed=3), *qkv())


def test_additive_mask():
    for shape in [(N, M), (1, 1, 1, M), (B, 1, N, M), (H, N, 1)]:
        checked(lambda q, k, v, m: fovea.attention(q, k, v, mask=m), *qkv(), *params(shape))


@pytest.mark.parametrize("mask", [None, fovea.Causal(), torch.tensor([[True] * M, [False] * M, [True] * M])])
def test_weights_and_log_sum_exp(mask):
    (slope,) = params((H,))

    def call(q, k, v, slope):
        output, lse, weights = fovea.attention(
            q, k, v, mask=mask, mods=[fovea.AlibiBias(slope)], return_lse=True, return_weights=True
        )
        return output, lse.exp(), weights

    checked(call, *qkv(), slope)
    checked(lambda q, k: fovea.attention(q, k, None, mask=mask), *qkv()[:2])
    checked(
        lambda q, k, v: fovea.attention(
            q, k, v, return_weights=True, mask=mask, weight_heads=[2, 1], weight_rows=[0, 2]
        ),
        *qkv(),
    )


@pytest.mark.parametrize("name", [name for name in SCORES if name != "coverage"])
def test_log_sum_exp_of_every_score(name):
    make, shapes = SCORES[name]

    def call(q, k, v, *rest):
        return fovea.attention(q, k, v, score=make(*rest), return_lse=True, dropout=0.5, seed=1)

    checked(call, *qkv(), *params(*shapes))


@pytest.mark.parametrize("as_numbers", [False, True])
def test_a_loss_of_all_three(as_numbers):
    """gradcheck looks at one output at a time."""
    q, k, v = qkv()
    visible = torch.tensor([[True] * M, [False] * M, [True] * M])
    mask = torch.zeros(N, M, dtype=F64).masked_fill(~visible, -torch.inf) if as_numbers else visible
    output, lse, weights = fovea.attention(q, k, v, mask=mask, return_lse=True, return_weights=True)
    # A formula's result for the -inf of a row that sees nothing has no effect.
    rows = torch.tensor([2.0, torch.nan, -1.0], dtype=F64).expand(B, H, N)
    along = (torch.ones_like(output), rows, weights.detach().cos())
    found = torch.autograd.grad((output, lse, weights), (q, k, v), along)
    output, weights, lse = plain(q, k, v, visible=lambda i, j: visible)
    seen = visible.any(1)
    total = output[:, :, seen].sum() + (lse * rows)[:, :, seen].sum() + (weights * along[2])[:, :, seen].sum()
    wanted = torch.autograd.grad(total, (q, k, v))
    assert all(torch.allclose(x, y.nan_to_num(), atol=1e-12) for x, y in zip(found, wanted))


def test_log_sum_exp_beside_a_sink():
    (sink,) = params((H,))

    def call(q, k, v, sink):
        return fovea.attention(q, k, v, normalizer=fovea.SoftmaxWithSink(sink), return_lse=True)

    checked(call, *qkv(), sink)


def test_log_sum_exp_in_sixteen_bits():
    q, k, v = tensors((1, 2, 3, 8), (1, 2, 5, 8), (1, 2, 5, 8), dtype=torch.bfloat16, grad=True)
    fovea.attention(q, k, v, return_lse=True)[1].sum().backward()
    found = q.grad.double()
    wide = [x.detach().double().requires_grad_() for x in (q, k, v)]
    plain(*wide)[2].sum().backward()
    assert (found - wide[0].grad).abs().max() <= 2**-8 * wide[0].grad.abs().max()


@pytest.mark.parametrize(
    "arguments",
    [
        {"normalizer": fovea.Sparsemax()},
        {"normalizer": fovea.Sigmoid()},
        {"mods": [fovea.RelativeKeyBias(torch.zeros(5, dtype=F64))]},
    ],
    ids=str,
)
def test_log_sum_exp_without_a_gradient_is_refused(arguments):
    lse = fovea.attention(*qkv(), return_lse=True, **arguments)[1]
    with pytest.raises(fovea.InvalidArgument, match="log_sum_exp: expected no gradient from it"):
        lse.sum().backward()


def test_only_requested_gradients_are_computed(monkeypatch):
    from fovea.torch import _derivatives

    q, k, v = qkv()
    asked = []
    engine = _derivatives.backward
    monkeypatch.setattr(_derivatives, "backward", lambda *given: asked.append(list(given[4])) or engine(*given))
    for wanted in ([q], [k], [v], [q, v]):
        for x in (q, k, v):
            x.requires_grad_(any(x is y for y in wanted))
            x.grad = None
        fovea.attention(q, k, v).sum().backward()
        assert [x.grad is not None for x in (q, k, v)] == [x.requires_grad for x in (q, k, v)]
        names = [name for name, x in zip(("query", "key", "value"), (q, k, v)) if x.requires_grad]
        assert asked.pop() == names and not asked


def test_parameters_of_another_dtype_get_gradients_of_it():
    q, k, v = tensors((1, 2, 3, 4), (1, 2, 3, 4), (1, 2, 3, 4), dtype=torch.bfloat16)
    slope = torch.ones(2, dtype=torch.bfloat16, requires_grad=True)
    mask = torch.zeros(3, 3, dtype=torch.bfloat16, requires_grad=True)
    fovea.attention(q, k, v, mods=[fovea.AlibiBias(slope)], mask=mask)[..., 0].sum().backward()
    assert slope.grad.dtype == mask.grad.dtype == torch.bfloat16 and slope.grad.abs().max() > 0


def test_overwritten_inputs_are_detected():
    q, k, v = qkv()
    copy = k * 1
    out = fovea.attention(q, copy, v)
    copy.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_no_second_derivative():
    q, k, v = qkv()
    (first,) = torch.autograd.grad(fovea.attention(q, k, v).sum(), q, create_graph=True)
    with pytest.raises(RuntimeError, match="no second derivatives"):
        first.sum().backward()
    # Nor is it silently missing beside a term that has one.
    (first,) = torch.autograd.grad(fovea.attention(q, k, v).square().sum(), q, create_graph=True)
    with pytest.raises(RuntimeError, match="no second derivatives"):
        (first.square().sum() + q.square().sum()).backward()


def test_hard_sample_asks_for_the_score_function():
    q, k, v = tensors((1, 1, 1, 2), (1, 1, 3, 2), (1, 1, 3, 1), grad=True)
    hard = fovea.HardSample()
    with pytest.raises(fovea.InvalidArgument, match="score_function"):
        fovea.attention(q, k, v, normalizer=hard, seed=1).sum().backward()
    fovea.attention(q.detach(), k.detach(), v, normalizer=hard, seed=1).sum().backward()
    assert v.grad.sum() == 1


def test_score_function_estimates_the_gradient_of_the_mean():
    """E[R · d ln P] = d E[R]: the mean over many seeds beside the gradient of the soft output."""
    q, k, v = tensors((1, 1, 1, 2), (1, 1, 3, 2), (1, 1, 3, 1))
    many = 4000
    Q, K, V = (x.expand(many, *x.shape[1:]) for x in (q, k, v))
    Q = Q.clone().requires_grad_()
    reward = fovea.attention(Q.detach(), K, V, normalizer=fovea.HardSample(), seed=5).squeeze(-1)
    fovea.torch.score_function(Q, K, V, reward, seed=5).backward()
    q.requires_grad_()
    fovea.attention(q, k, v).sum().backward()
    error = Q.grad.std(0) / many**0.5
    assert ((Q.grad.mean(0) - q.grad[0]).abs() <= 5 * error + 1e-12).all()


def test_gumbel_sample_has_a_gradient():
    q, k, v = qkv()
    fovea.attention(q, k, v, normalizer=fovea.GumbelSample(0.5), seed=1).square().sum().backward()
    assert q.grad.abs().max() > 0
