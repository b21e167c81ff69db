"""Checkpoints and `patched`: the backward pass computes again what the forward pass computed, whichever of the two is
inside the mode."""

import contextlib
import itertools
import threading
import warnings

import pytest
from torch.nn.functional import scaled_dot_product_attention as sdpa
from torch.utils.checkpoint import checkpoint, checkpoint_sequential
from torch_support import F64, tensors, torch

import fovea
import fovea.torch
from fovea.torch import _sdpa

pytestmark = pytest.mark.filterwarnings("ignore")
PLACES = list(itertools.product(("inside", "outside"), repeat=2))
KINDS = {
    "reentrant": {"use_reentrant": True},
    "not reentrant": {"use_reentrant": False},
    "unchecked": {"use_reentrant": False, "determinism_check": "none"},
    "to the end": {"use_reentrant": False, "early_stop": False},
}


@pytest.fixture
def served(monkeypatch):
    """The number of calls that Fovea served."""
    calls = []
    run = _sdpa.run
    monkeypatch.setattr(_sdpa, "run", lambda *args: calls.append(1) or run(*args))
    return calls


def alike(found, expected):
    """Sums over several checkpoints may be taken in another order; another dropout differs in the first digit."""
    return all(torch.allclose(x, y, rtol=1e-11, atol=1e-12) for x, y in zip(found, expected))


def mode(place):
    return fovea.torch.patched() if place == "inside" else contextlib.nullcontext()


class Block(torch.nn.Module):
    """head_dim and length are equal, so that tensors saved for the other attention have shapes that fit."""

    def __init__(self, rate):
        super().__init__()
        torch.manual_seed(0)
        self.linear = torch.nn.Linear(8, 8, dtype=F64)
        self.rate = rate

    def forward(self, x):
        y = self.linear(x)
        return self.linear(sdpa(y, y, y, dropout_p=self.rate, is_causal=True))


def gradients(call, block, forward, backward):
    (x,) = tensors((2, 2, 8, 8), grad=True)
    block.zero_grad()
    torch.manual_seed(3)
    with mode(forward):
        loss = call(x).square().sum()
    with mode(backward):
        loss.backward()
    return [x.grad, *(p.grad for p in block.parameters())]


@pytest.mark.parametrize("places", PLACES, ids=str)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rate", [0.0, 0.4])
def test_every_combination(served, rate, kind, places):
    block = Block(rate)
    expected = gradients(block, block, *places)
    count = 1 if places[0] == "inside" else 0
    assert len(served) == count
    served.clear()
    found = gradients(lambda x: checkpoint(block, x, **KINDS[kind]), block, *places)
    assert alike(found, expected)
    assert len(served) == 2 * count


@pytest.mark.parametrize("places", PLACES, ids=str)
@pytest.mark.parametrize("kinds", list(itertools.product(("reentrant", "not reentrant"), repeat=2)), ids=str)
def test_checkpoints_in_checkpoints(kinds, places):
    block = Block(0.4)
    inner = lambda x: block(checkpoint(block, x, **KINDS[kinds[1]]))  # noqa: E731
    expected = gradients(lambda x: block(block(x)), block, *places)
    found = gradients(lambda x: checkpoint(inner, x, **KINDS[kinds[0]]), block, *places)
    assert alike(found, expected)


@pytest.mark.parametrize("places", PLACES, ids=str)
@pytest.mark.parametrize("kind", ["reentrant", "not reentrant"])
def test_layers_and_segments(kind, places):
    torch.manual_seed(0)
    make = lambda: torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.3, batch_first=True, dtype=F64)  # noqa: E731
    stack = torch.nn.Sequential(make(), make(), make())
    (x,) = tensors((2, 5, 8), grad=True)

    def run(call):
        stack.zero_grad()
        torch.manual_seed(1)
        with mode(places[0]):
            loss = call(x).square().sum()
        with mode(places[1]):
            loss.backward()
        return [p.grad for p in stack.parameters()]

    expected = run(stack)
    found = run(lambda x: checkpoint_sequential(stack, 3, x, **KINDS[kind]))
    assert alike(found, expected)


@pytest.mark.parametrize("kind", ["reentrant", "not reentrant"])
@pytest.mark.parametrize("backward", ["inside", "outside"])
def test_one_checkpoint_inside_one_outside(served, kind, backward):
    block = Block(0.4)

    def both(run):
        def call(x):
            y = run(x)
            with fovea.torch.patched():
                return run(y)

        return call

    expected = gradients(both(block), block, "outside", backward)
    served.clear()
    found = gradients(both(lambda x: checkpoint(block, x, **KINDS[kind])), block, "outside", backward)
    assert alike(found, expected) and len(served) == 2


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("backward", ["inside", "outside"])
def test_a_mode_entered_by_the_checkpointed_function(served, kind, backward):
    """The mode covers a part of the function, in the forward pass and in the recomputation."""
    block = Block(0.4)

    def half(x):
        with fovea.torch.patched():
            x = block(x)
        return block(x)

    expected = gradients(half, block, "outside", backward)
    assert len(served) == 1
    served.clear()
    found = gradients(lambda x: checkpoint(half, x, **KINDS[kind]), block, "outside", backward)
    assert alike(found, expected) and len(served) == 2


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("backward", ["inside", "outside"])
def test_hooks_above_a_checkpoint(kind, backward):
    block = Block(0.4)

    def hooked(x):
        with torch.autograd.graph.save_on_cpu():
            return block(x)

    expected = gradients(hooked, block, "inside", backward)
    found = gradients(lambda x: checkpoint(hooked, x, **KINDS[kind]), block, "inside", backward)
    assert alike(found, expected)
    assert torch._C._autograd._top_saved_tensors_default_hooks(True) is None


@pytest.mark.parametrize("kind", ["reentrant", "not reentrant"])
def test_backward_on_another_thread(kind):
    block = Block(0.4)

    def run(call):
        (x,) = tensors((2, 2, 8, 8), grad=True)
        torch.manual_seed(3)
        with fovea.torch.patched():
            loss = call(x).square().sum()
            thread = threading.Thread(target=loss.backward)
            thread.start()
            thread.join()
        return x.grad

    assert torch.equal(run(lambda x: checkpoint(block, x, **KINDS[kind])), run(block))


def again(function, state, x, gradient):
    """The gradient by x, computed from data that were not kept."""
    x = x.detach().requires_grad_()
    now = torch.get_rng_state()
    torch.set_rng_state(state)
    with torch.enable_grad():
        y = function(x)
    torch.set_rng_state(now)
    torch.autograd.backward(y, gradient)
    return x.grad


class Recomputed(torch.autograd.Function):
    """A user's own checkpoint."""

    @staticmethod
    def forward(ctx, function, x):
        ctx.function, ctx.state = function, torch.get_rng_state()
        ctx.save_for_backward(x)
        return function(x)

    @staticmethod
    def backward(ctx, gradient):
        return None, again(ctx.function, ctx.state, *ctx.saved_tensors, gradient)


class Decorated(Recomputed):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu")
    def forward(ctx, function, x):
        return Recomputed.forward(ctx, function, x)


class WithGradients(Recomputed):
    @staticmethod
    def forward(ctx, function, x):
        with torch.enable_grad():
            return Recomputed.forward(ctx, function, x)


class Boxed(Recomputed):
    """A newer PyTorch passes its gradients in a list."""

    boxed_grads_call = True

    @staticmethod
    def backward(ctx, gradients):
        gradient = gradients[0] if isinstance(gradients, list) else gradients
        return Recomputed.backward(ctx, gradient)


class _SetUp(torch.autograd.Function):
    """Its forward sees no call, so no other code does."""

    @staticmethod
    def forward(function, state, x):
        return function(x)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.function, ctx.state, x = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx, gradient):
        return None, None, again(ctx.function, ctx.state, *ctx.saved_tensors, gradient)


class SetUp:
    @staticmethod
    def apply(function, x):
        return _SetUp.apply(function, torch.get_rng_state(), x)


class Hooks:
    """Saved-tensor hooks that keep nothing, and compute everything again when the first tensor is needed."""

    @staticmethod
    def apply(function, x):
        state, given, count, found = torch.get_rng_state(), x.detach(), [0], []

        def pack(tensor):
            count[0] += 1
            return count[0] - 1

        def unpack(place):
            if not found:
                now = torch.get_rng_state()
                torch.set_rng_state(state)
                with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(
                    lambda tensor: found.append(tensor.detach()), lambda nothing: None
                ):
                    function(given.clone().requires_grad_())
                torch.set_rng_state(now)
            return found[place]

        with torch.autograd.graph.saved_tensors_hooks(pack, unpack):
            return function(x)


OWN = (Recomputed, Decorated, WithGradients, Boxed, SetUp, Hooks)


@pytest.mark.parametrize("places", PLACES, ids=str)
@pytest.mark.parametrize("own", OWN, ids=lambda own: own.__name__)
def test_recomputation_of_ones_own(served, own, places):
    block = Block(0.4)
    if own is Hooks and places == ("outside", "inside"):
        with pytest.raises(RuntimeError, match="a hook of the backward pass calls attention"):
            gradients(lambda x: own.apply(block, x), block, *places)
        return
    expected = gradients(block, block, *places)
    served.clear()
    found = gradients(lambda x: own.apply(block, x), block, *places)
    assert alike(found, expected)
    assert len(served) == (2 if places[0] == "inside" else 0)


@pytest.mark.parametrize("places", PLACES, ids=str)
@pytest.mark.parametrize("own", [Recomputed, SetUp, Hooks], ids=lambda own: own.__name__)
@pytest.mark.parametrize("kind", ["reentrant", "not reentrant"])
def test_checkpoints_and_recomputation_of_ones_own(kind, own, places):
    if own is Hooks and (kind == "reentrant" or places == ("outside", "inside")):
        pytest.skip("a checkpoint without gradients saves no tensors; the other is refused, above")
    block = Block(0.4)
    expected = gradients(block, block, *places)
    inner = lambda x: checkpoint(block, x, **KINDS[kind])  # noqa: E731
    if own is not Hooks:
        assert alike(gradients(lambda x: own.apply(inner, x), block, *places), expected)
    outer = lambda x: own.apply(block, x)  # noqa: E731
    assert alike(gradients(lambda x: checkpoint(outer, x, **KINDS[kind]), block, *places), expected)


@pytest.mark.parametrize("backward", ["inside", "outside"])
@pytest.mark.parametrize("own", OWN, ids=lambda own: own.__name__)
def test_a_mode_entered_by_a_function_that_is_computed_again(served, own, backward):
    block = Block(0.4)

    def half(x):
        with fovea.torch.patched():
            x = block(x)
        return block(x)

    if own is Hooks and backward == "inside":
        with pytest.raises(RuntimeError, match="a hook of the backward pass calls attention"):
            gradients(lambda x: own.apply(half, x), block, "outside", backward)
        return
    expected = gradients(half, block, "outside", backward)
    served.clear()
    found = gradients(lambda x: own.apply(half, x), block, "outside", backward)
    assert alike(found, expected) and len(served) == 2


def test_hooks_of_gradients(served):
    """Hooks may recompute anything; entering `patched()` in the hook says by which attention."""
    x, other = tensors((2, 2, 8, 8), (2, 2, 8, 8), grad=True)
    loss = (2 * other).sum()

    def plain(gradient):
        sdpa(x, x, x)

    def entering(gradient):
        with fovea.torch.patched():
            sdpa(x, x, x)

    handle = other.register_hook(plain)
    loss.backward(retain_graph=True)
    with fovea.torch.patched(), pytest.raises(RuntimeError, match="a hook of the backward pass calls attention"):
        loss.backward(retain_graph=True)
    handle.remove()
    other.register_hook(entering)
    assert not served
    for place in ("inside", "outside"):
        with mode(place):
            loss.backward(retain_graph=True)
    assert len(served) == 2


@pytest.mark.parametrize("own", [Recomputed, SetUp], ids=lambda own: own.__name__)
def test_each_call_of_a_function_by_itself(own):
    """The same class inside, outside and inside again; all backward passes come after them, and one in the middle."""
    block = Block(0.4)

    def run(call):
        (x,) = tensors((2, 2, 8, 8), grad=True)
        torch.manual_seed(3)
        losses = []
        for place in ("inside", "outside", "inside", "outside", "outside", "inside"):
            with mode(place):
                losses.append(call(x).square().sum())
                if len(losses) == 3:
                    losses[1].backward(retain_graph=True)
                    losses.append(call(x).square().sum())
        for loss in reversed(losses):
            with mode("inside" if len(losses) % 2 else "outside"):
                loss.backward()
        return x.grad

    assert alike([run(lambda x: own.apply(block, x))], [run(block)])


def test_numbers_of_calls():
    from fovea.torch._recompute import _Numbers

    numbers, known = _Numbers(), set()
    for begin, end in ((5, 9), (12, 14), (8, 10), (30, 30), (10, 12), (20, 25), (18, 20), (0, 1)):
        numbers.add(begin, end)
        known.update(range(begin, end))
        assert {n for n in range(-2, 40) if n in numbers} == known
    assert len(numbers._begins) <= 4  # adjacent ranges become one span


@pytest.mark.parametrize("places", PLACES, ids=str)
@pytest.mark.parametrize("kind", ["reentrant", "not reentrant", "own"])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_graphs_that_are_computed_again(backend, kind, places):
    torch._dynamo.reset()
    block = Block(0.4)
    graph = torch.compile(block, backend=backend)
    run = (lambda x: Recomputed.apply(graph, x)) if kind == "own" else lambda x: checkpoint(graph, x, **KINDS[kind])
    expected = gradients(graph, block, *places)
    assert alike(gradients(run, block, *places), expected)
    if backend == "eager":
        assert alike(expected, gradients(block, block, *places))


def test_an_unknown_checkpoint_is_refused(monkeypatch):
    """Another version of PyTorch may keep its functions elsewhere, or not ask a call for its backward."""
    from fovea.torch import _recompute

    block = Block(0.4)
    (x,) = tensors((2, 2, 8, 8), grad=True)
    monkeypatch.setattr(_recompute, "_KEPT", "elsewhere")
    monkeypatch.setattr(_recompute, "_engine_asks_the_call", lambda: False)
    for kind, name in (("reentrant", "torch.autograd.Function"), ("not reentrant", "torch.utils.checkpoint")):
        with fovea.torch.patched(), pytest.raises(RuntimeError, match=f"{name} .* not known"):
            checkpoint(block, x, **KINDS[kind])


def test_inference_looks_at_nothing(monkeypatch):
    from fovea.torch import _recompute

    def looked(*args):
        raise AssertionError

    for name in ("_wrap_call", "_wrap_classes", "_wrap_frame", "_wrap_hooks"):
        monkeypatch.setattr(_recompute, name, looked)
    (x,) = tensors((2, 2, 8, 8))
    with fovea.torch.patched(), warnings.catch_warnings():
        with torch.no_grad():
            sdpa(x, x, x)
        with torch.inference_mode():
            sdpa(x, x, x)
        sdpa(x.requires_grad_(), x, x).sum().backward()
