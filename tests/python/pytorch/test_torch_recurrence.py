"""`fovea.recurrence` on tensors: NumPy's results, gradients of every array, graphs, transforms, checkpoints."""

from __future__ import annotations

import dataclasses
import os
import sys
from pathlib import Path

import numpy as np
import pytest

import fovea

torch = pytest.importorskip("torch")
import fovea.torch  # noqa: E402
sys.path.insert(0, str(Path(__file__).parents[1]))

import recurrence_oracle as oracle  # noqa: E402
from recurrence_oracle import Sizes  # noqa: E402

SMALL = Sizes(1, 2, 1, 2, 4, 2, 3)


def of_numpy(x, grad=False):
    if isinstance(x, np.ndarray):
        return torch.tensor(x).requires_grad_(grad)
    return dataclasses.replace(x, **{name: of_numpy(array, grad) for name, array in x._arrays().items()})


def made(parts, sizes, grad=False, strongest=-1.0):
    """(query, key, value), the spec and the initial state as tensors of f64, and the same for NumPy."""
    rng = np.random.default_rng(5)
    spec = oracle.make(rng, sizes, *parts)
    if parts[0] != "no decay":
        spec["decay"] = dataclasses.replace(spec["decay"], log_decay=np.maximum(spec["decay"].log_decay, strongest))
    arrays = oracle.arrays(rng, sizes)
    columns = sizes.value_dim + ("normalizer" in spec and isinstance(spec["normalizer"], fovea.KeySum))
    state = rng.random((sizes.batch, sizes.heads, sizes.key_dim, columns))
    given = [of_numpy(x, grad) for x in arrays]
    made_spec = {name: of_numpy(part, grad) for name, part in spec.items()}
    return given, made_spec, of_numpy(state, grad), (arrays, spec, state)


def leaves(given, spec, state):
    """All tensors, and the function of them."""
    names = [(part, name) for part, x in spec.items() for name in x._arrays()]

    def call(q, k, v, state, *rest):
        replaced = dict(spec)
        for (part, name), x in zip(names, rest):
            replaced[part] = dataclasses.replace(replaced[part], **{name: x})
        return fovea.recurrence(q, k, v, initial_state=state, return_state=True, **replaced)

    return (*given, state, *(getattr(spec[part], name) for part, name in names)), call


@pytest.mark.parametrize("parts", oracle.grid(), ids=", ".join)
def test_equals_numpy_and_has_its_gradients(parts):
    sizes = Sizes()
    given, spec, state, (arrays, numpys, numpy_state) = made(parts, sizes, grad=True, strongest=-40)
    want, want_state = fovea.recurrence(*arrays, initial_state=numpy_state, return_state=True, **numpys)
    got, got_state = fovea.recurrence(*given, initial_state=state, return_state=True, **spec)
    assert np.array_equal(got.detach().numpy(), want) and np.array_equal(got_state.detach().numpy(), want_state)
    with torch.no_grad():
        assert np.array_equal(fovea.recurrence(*given, initial_state=state, **spec).numpy(), want)
    d_output, d_state = torch.randn_like(got), torch.randn_like(got_state)
    inputs, _ = leaves(given, spec, state)
    found = torch.autograd.grad((got, got_state), inputs, (d_output, d_state))
    wanted = fovea.recurrence_gradients(
        *arrays, d_output.numpy(), d_final_state=d_state.numpy(), initial_state=numpy_state, **numpys
    )
    names = ["query", "key", "value", "initial_state", *(f"{p}.{n}" for p, x in spec.items() for n in x._arrays())]
    assert set(names) == set(wanted)
    assert all(np.array_equal(x.numpy(), wanted[name]) for name, x in zip(names, found))


WIDE = Sizes(1, 2, 2, 2, 50, 16, 16)


def saved_states(output):
    """What forward saved for backward."""
    return output.grad_fn.saved_tensors[-1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize(
    "parts",
    [
        ("no decay", "additive", "after", "plain"),
        ("scalar", "delta of beta", "after", "plain"),
        ("key", "additive", "before", "sums"),
    ],
    ids=", ".join,
)
def test_backward_reads_what_forward_saved(parts, dtype):
    """It has the bits of a transform of torch.func, which saves nothing, and follows what it reads."""
    inputs, call = some(parts, WIDE)
    inputs = [x.detach().to(dtype).requires_grad_() for x in inputs]
    output, _ = call(*inputs)
    saved = saved_states(output)
    found = torch.autograd.grad(output.sum(), inputs, retain_graph=True)
    again = torch.func.grad(lambda *x: call(*x)[0].sum(), tuple(range(len(inputs))))(*inputs)
    assert all(map(torch.equal, found, again))
    words = saved.detach().numpy()  # whose writes no graph notices
    words[64 // words.itemsize :] = np.nan
    assert any(x.isnan().any() for x in torch.autograd.grad(output.sum(), inputs, retain_graph=True))
    words[:] = 0
    with pytest.raises(fovea.InvalidArgument, match="saved_states: expected what recur saved"):
        output.sum().backward()


def test_large_states_are_not_saved():
    """A state of 256 x 256 for 16 tokens has four times their numbers."""
    for width, saves in ((128, True), (256, False)):
        q, k, v = torch.randn(3, 1, 1, 64, width, requires_grad=True)
        assert (saved_states(fovea.recurrence(q, k, v)) is not None) == saves


def test_what_is_saved_may_be_moved():
    inputs, call = some(sizes=WIDE)
    wanted = torch.autograd.grad(call(*inputs)[0].sum(), inputs)

    def moved(x):
        wider = x.new_empty(x.numel() + 1)
        wider[1:] = x.flatten()
        return wider[1:].view(x.shape)

    with torch.autograd.graph.saved_tensors_hooks(lambda x: x, moved):
        output, _ = call(*inputs)
    assert saved_states(output).data_ptr() % 64
    assert all(map(torch.equal, torch.autograd.grad(output.sum(), inputs), wanted))


def resident_bytes():
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="the memory of a process is read from Linux's /proc")
def test_memory_of_saved_states_is_kept_until_it_is_asked_for():
    """280 states of 4 heads, 128 x 128 in f32, are 73 MB: more than regions keep where nobody asks them to."""
    q, k, v = torch.randn(3, 1, 4, 4480, 128, requires_grad=True)

    def place():
        output = fovea.recurrence(q, k, v)
        at = saved_states(output).data_ptr()
        output.sum().backward()
        return at

    assert place() == place()
    before = resident_bytes()
    fovea.torch.empty_cache()
    assert before - resident_bytes() > 50e6
    assert place() == place()


@pytest.mark.parametrize("parts", oracle.grid(), ids=", ".join)
def test_gradcheck(parts):
    given, spec, state, _ = made(parts, SMALL, grad=True)
    inputs, call = leaves(given, spec, state)
    assert torch.autograd.gradcheck(call, inputs)


def some(parts=("key", "delta of both", "before", "plain"), sizes=SMALL, grad=True):
    given, spec, state, _ = made(parts, sizes, grad)
    return leaves(given, spec, state)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("parts", [("scalar", "delta of beta", "after", "plain"), ("key", "additive", "before", "sums")], ids=str)
def test_a_graph_without_breaks(backend, parts):
    inputs, call = some(parts, Sizes(length=20))
    want, want_state = call(*inputs)
    got, got_state = torch.compile(call, backend=backend, fullgraph=True)(*inputs)
    assert torch.equal(got, want) and torch.equal(got_state, want_state)
    found, wanted = (torch.autograd.grad((a * a).sum() + b.sum(), inputs) for a, b in ((got, got_state), (want, want_state)))
    for a, b in zip(found, wanted):
        torch.testing.assert_close(a, b, rtol=1e-13, atol=1e-13)


def test_a_graph_of_any_length():
    lengths = []

    def backend(graph, _):
        lengths.append(1)
        return graph

    def call(q, k, v, g):
        return fovea.recurrence(q, k, v, decay=fovea.ScalarDecay(g), write=fovea.DeltaWrite(torch.sigmoid(g)))

    compiled = torch.compile(call, backend=backend, fullgraph=True, dynamic=True)
    for length in (5, 9, 17):
        q, k, v = torch.randn(3, 1, 2, length, 4)
        g = -torch.rand(1, 2, length)
        assert torch.equal(compiled(q, k, v, g), call(q, k, v, g))
    assert len(lengths) == 1


@pytest.mark.parametrize("layout", ["heads outside", "heads inside", "one of a wider tensor"])
def test_the_layout_of_the_output(layout):
    """It is that of the values, in a graph and outside."""
    q, k, v = torch.randn(3, 2, 3, 6, 4)
    if layout == "heads inside":
        q, k, v = (x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v))
    if layout == "one of a wider tensor":
        q, k, v = torch.randn(2, 6, 3, 12).transpose(1, 2).split(4, -1)
    for few in (q, q[:, :1]):
        plain = fovea.recurrence(few, k, v)
        graph = torch.compile(fovea.recurrence, backend="aot_eager", fullgraph=True)(few, k, v)
        assert graph.stride() == plain.stride() and torch.equal(graph, plain)
        if layout != "heads outside":
            assert plain.transpose(1, 2).is_contiguous()


FORM = ("identity key delta before-decay none", 0.0, None, True)


def test_opcheck():
    (q, k, v, state, g, beta, erase, bonus), _ = some()
    given = (q, k, v, g, beta, erase, None, None, bonus, None, state)
    operator = torch.ops.fovea.recur.default
    torch.library.opcheck(operator, (*given, None, None, *FORM))
    starts, present = torch.tensor([0, 3, 4]), torch.tensor([[True, False, True, True]])
    states = torch.cat([state, state]).detach().requires_grad_()
    torch.library.opcheck(operator, (*given[:-1], states, starts, present, *FORM))
    sums = ("elu+1 none additive after-write sum", 1e-6, 0.5, False)
    torch.library.opcheck(operator, (q, k, v, *[None] * 10, *sums))
    torch.library.opcheck(operator, (None, k, v, *[None] * 10, "identity none additive after-write none", 0.0, None, True))


def test_transforms():
    inputs, call = some()
    want = torch.autograd.grad(call(*inputs)[0].sum(), inputs[0])[0]
    assert torch.equal(torch.func.grad(lambda q: call(q, *inputs[1:])[0].sum())(inputs[0]), want)
    both = torch.stack([inputs[0], 2 * inputs[0]]).detach()
    found = torch.func.vmap(lambda q: call(q, *inputs[1:])[0])(both)
    assert torch.equal(found, torch.stack([call(q, *inputs[1:])[0] for q in both]))
    each = torch.func.vmap(torch.func.grad(lambda q: call(q, *inputs[1:])[0].sum()))(both)
    assert torch.equal(each, torch.stack([want, want]))
    losses = torch.randn(3, *call(*inputs)[0].shape, dtype=torch.float64)
    batched = torch.autograd.grad(call(*inputs)[0], inputs, losses, is_grads_batched=True)
    for n, loss in enumerate(losses):
        alone = torch.autograd.grad(call(*inputs)[0], inputs, loss)
        assert all(torch.equal(a[n], b) for a, b in zip(batched, alone))
    with pytest.raises(fovea.InvalidArgument, match="recurrence: key: expected a call outside jvp"):
        torch.func.jvp(lambda q: call(q, *inputs[1:])[0], (inputs[0],), (inputs[0],))
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(inputs[0].detach(), inputs[0].detach())
        with pytest.raises(fovea.InvalidArgument, match="forward-mode derivatives, which recurrence has not"):
            call(dual, *inputs[1:])


def test_no_second_derivative():
    inputs, call = some()
    for function in (call, torch.compile(call, backend="aot_eager")):
        with pytest.raises(RuntimeError, match="second derivatives|double backward"):
            first = torch.autograd.grad(function(*inputs)[0].sum(), inputs[0], create_graph=True)[0]
            first.sum().backward()


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints(reentrant):
    inputs, call = some(sizes=Sizes())
    wanted = torch.autograd.grad(call(*inputs)[0].sum(), inputs)
    again = torch.utils.checkpoint.checkpoint(lambda *x: call(*x)[0], *inputs, use_reentrant=reentrant)
    again.sum().backward()
    assert all(torch.equal(x.grad, want) for x, want in zip(inputs, wanted))


def test_packed_and_padded():
    q, k, v = torch.randn(3, 1, 2, 9, 4, requires_grad=True)
    starts = torch.tensor([0, 4, 9], dtype=torch.int32)
    out, states = fovea.recurrence(q, k, v, sequence_starts=starts, return_state=True)
    assert torch.equal(out[:, :, 4:], fovea.recurrence(*(x[:, :, 4:] for x in (q, k, v))))
    graph = torch.compile(fovea.recurrence, backend="aot_eager", fullgraph=True)
    found, found_states = graph(q, k, v, sequence_starts=starts, return_state=True)
    assert torch.equal(found, out) and torch.equal(found_states, states)
    # A function of its own, since PyTorch limits how often one is compiled anew.
    by_array = torch.compile(lambda *x: fovea.recurrence(*x, sequence_starts=starts.numpy()), backend="aot_eager", fullgraph=True)
    assert torch.equal(by_array(q, k, v), out)
    present = torch.tensor([[1, 1, 0, 1, 0, 0, 1, 1, 1]])
    for function in (fovea.recurrence, graph):
        one, state = function(q, k, v, present=present, return_state=True)
        kept = present[0].bool()
        alone, alone_state = fovea.recurrence(*(x[:, :, kept] for x in (q, k, v)), return_state=True)
        assert torch.equal(one[:, :, kept], alone) and torch.equal(state, alone_state) and not one[:, :, ~kept].any()


def test_in_place():
    q, k, v = torch.randn(3, 1, 2, 9, 4)
    state, out = torch.zeros(1, 2, 4, 4), torch.empty(1, 2, 9, 4)
    want, after = fovea.recurrence(q, k, v, return_state=True)
    got = fovea.recurrence(q, k, v, initial_state=state, final_state=state, out=out)
    assert got[0] is out and got[1] is state and torch.equal(out, want) and torch.equal(state, after)
    with pytest.raises(fovea.InvalidArgument, match="out: expected None where gradients are wanted"):
        fovea.recurrence(q.requires_grad_(), k, v, out=out)
    with pytest.raises(fovea.InvalidArgument, match="final_state: expected a tensor that wants no gradient"):
        fovea.recurrence(q.detach(), k, v, final_state=np.zeros((1, 2, 4, 4), "f4"))


def test_a_loss_of_the_state_alone():
    k, v = torch.randn(2, 1, 2, 9, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda k, v: fovea.recurrence(None, k, v, return_state=True), (k, v))
    q = torch.randn_like(k).requires_grad_()
    _, state = fovea.recurrence(q, k, v, return_state=True)
    assert not torch.autograd.grad(state.sum(), q)[0].any()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_dtypes(dtype):
    q, k, v = (x.to(dtype).requires_grad_() for x in torch.randn(3, 1, 2, 9, 4))
    g = torch.full((1, 2, 9), -0.5, dtype=dtype, requires_grad=True)
    out, state = fovea.recurrence(q, k, v, decay=fovea.ScalarDecay(g), return_state=True)
    assert (out.dtype, state.dtype) == (dtype, torch.float32)
    found = torch.autograd.grad(out.sum(), (q, k, v, g))
    assert {x.dtype for x in found} == {dtype}  # converted gates get gradients of their own dtype


@pytest.mark.parametrize(
    ("dtype", "mean", "limit"),
    [(torch.bfloat16, 0, 1e-2), (torch.float16, 0, 1e-3), (torch.bfloat16, 4, 0.3), (torch.float16, 4, 0.04)],
)
def test_gradients_of_a_key_sum_in_16_bits(dtype, mean, limit):
    """docs/recurrence.md has the errors: backward reads a rounded output, and the gradient of the queries is a difference."""
    rng = torch.Generator().manual_seed(0)
    given = [(torch.randn(1, 2, 512, 64, generator=rng) + shift).to(dtype) for shift in (0, 0, mean, 0)]

    def gradients(*tensors):
        *leaves, d_output = (x.detach().requires_grad_() for x in tensors)
        o = fovea.recurrence(*leaves, feature_map=fovea.EluPlusOne(), normalizer=fovea.KeySum())
        return torch.autograd.grad(o, leaves, d_output.detach())

    for got, want in zip(gradients(*given), gradients(*(x.double() for x in given))):
        assert float((got - want).norm() / want.norm()) < limit


def test_autocast():
    q, k, v = torch.randn(3, 1, 2, 9, 4, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        out = fovea.recurrence(q, k, v)
    assert out.dtype == torch.bfloat16
    assert torch.equal(out, fovea.recurrence(*(x.bfloat16() for x in (q, k, v))))
    assert torch.autograd.grad(out.sum(), q)[0].dtype == torch.float32


def test_refused():
    q, k, v = torch.randn(3, 1, 2, 9, 4)
    for wrong, says in (
        (lambda: fovea.recurrence(q.double(), k, v), "query: expected the dtype of the key"),
        (lambda: fovea.recurrence(q, k, v.numpy()), "value: expected a tensor of PyTorch, as the key is one"),
        (lambda: fovea.recurrence(q.numpy(), k.numpy(), v), "value: expected an array of the key's library"),
        (lambda: fovea.recurrence(q.to("meta"), k, v), "query: expected a tensor on the CPU"),
        (lambda: fovea.recurrence(q, k.to_sparse(), v), "key: expected a dense tensor"),
        (lambda: fovea.recurrence(q, k, v, decay=fovea.ScalarDecay(torch.ones(1, 2, 9))), "decay.log_decay"),
        (lambda: fovea.recurrence(q, k, v, decay=fovea.ScalarDecay(torch.zeros(1, 2, 9, device="meta"))), "decay.log_decay"),
        (lambda: fovea.recurrence(q, k, v, present=torch.ones(1, 9)), "present: expected an array of truth values"),
        (lambda: fovea.recurrence(q, k, v, initial_state=torch.ones(1, 2, 4, 3)), "initial_state: expected f32"),
    ):
        with pytest.raises(fovea.InvalidArgument, match=says):
            wrong()


def test_a_gate_that_changes_in_place_is_noticed():
    q, k, v = torch.randn(3, 1, 2, 9, 4, requires_grad=True)
    g = torch.full((1, 2, 9), -0.5)
    out = fovea.recurrence(q, k, v, decay=fovea.ScalarDecay(g))
    g.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_what_is_written_in_place_is_known_to_autograd():
    k = torch.randn(1, 2, 20, 8, requires_grad=True)
    q, state = torch.randn(1, 2, 20, 8), torch.zeros(1, 2, 8, 8)
    plan = fovea.plan(query_len=20, key_len=20, head_dim=8, num_query_heads=2)
    for write in (
        lambda x: fovea.recurrence(q, q, q, out=x),
        lambda x: fovea.attention(q, q, q, out=x),
        lambda x: plan(q, q, q, out=x),
    ):
        buffer = torch.randn(1, 2, 20, 8)
        loss = (k * buffer).sum()  # keeps the buffer for backward
        with torch.no_grad():
            write(buffer)
        with pytest.raises(RuntimeError, match="inplace"):
            loss.backward()
    loss = (k[..., :8, :] * state).sum()
    with torch.no_grad():
        fovea.recurrence(q, q, q, initial_state=state, final_state=state)
    with pytest.raises(RuntimeError, match="inplace"):
        loss.backward()
    with torch.inference_mode():
        fovea.attention(q, q, q, out=torch.empty_like(q))


def test_ssd_refuses_shapes_that_it_would_broadcast():
    x, dt, A, B = torch.randn(1, 9, 4, 5), torch.rand(1, 9, 4), -torch.rand(4), torch.randn(1, 9, 2, 3)
    for name, wrong in (
        ("C", torch.randn(1, 9, 8, 3)),
        ("C", torch.randn(1, 9, 4, 3)),
        ("B", torch.randn(2, 9, 2, 3)),
        ("B", torch.randn(1, 9, 0, 3)),
        ("B", torch.randn(1, 9, 3, 3)),
        ("B", torch.randn(1, 9, 8, 3)),
        ("z", torch.randn(2, 9, 4, 5)),
        ("z", torch.randn(1, 9, 1, 5)),
        ("z", 1.0),
        ("dt_bias", torch.randn(9, 4)),
        ("dt_bias", torch.randn(1)),
        ("D", torch.randn(1)),
        ("D", torch.randn(1, 5)),
        ("D", 2.0),
        ("initial_states", torch.randn(1, 4, 3, 5)),
        ("initial_states", 0),
        ("dt_limit", (2, 1)),
        ("dt_limit", None),
    ):
        given = {"x": x, "dt": dt, "A": A, "B": B, "C": B, name: wrong}
        if name == "B":
            given["C"] = wrong
        with pytest.raises(fovea.InvalidArgument) as caught:
            fovea.torch.ssd(**given)
        assert (caught.value.function, caught.value.argument) == ("ssd", name), caught.value
    for more in ({"D": torch.randn(4)}, {"D": torch.randn(4, 5)}, {"z": x, "dt_bias": torch.randn(4), "dt_limit": (0.1, 2)}):
        assert fovea.torch.ssd(x, dt, A, B, B, **more).shape == x.shape
