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
    """How many calls Fovea served."""
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
    """head_dim and length are alike, so that tensors that are saved for another attention have shapes that fit."""

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
    """It covers a part of the function, then as now."""
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


class Recomputed(torch.autograd.Function):
    """Somebody's own checkpoint."""

    @staticmethod
    def forward(ctx, function, x):
        ctx.function, ctx.state = function, torch.get_rng_state()
        ctx.save_for_backward(x)
        return function(x)

    @staticmethod
    def backward(ctx, gradient):
        (x,) = (x.detach().requires_grad_() for x in ctx.saved_tensors)
        now = torch.get_rng_state()
        torch.set_rng_state(ctx.state)
        with torch.enable_grad():
            y = ctx.function(x)
        torch.set_rng_state(now)
        torch.autograd.backward(y, gradient)
        return None, x.grad


@pytest.mark.parametrize("place", ["inside", "outside"])
def test_recomputation_of_ones_own_in_the_same_place(place):
    block = Block(0.4)
    expected = gradients(block, block, place, place)
    found = gradients(lambda x: Recomputed.apply(block, x), block, place, place)
    assert alike(found, expected)
    # And with checkpoints of PyTorch around it and inside.
    for kind in ("reentrant", "not reentrant"):
        own = lambda x: checkpoint(block, x, **KINDS[kind])  # noqa: B023,E731
        found = gradients(lambda x: Recomputed.apply(own, x), block, place, place)
        assert alike(found, expected)
        own = lambda x: Recomputed.apply(block, x)  # noqa: E731
        found = gradients(lambda x: checkpoint(own, x, **KINDS[kind]), block, place, place)
        assert alike(found, expected)


@pytest.mark.parametrize("places", [("inside", "inside"), ("outside", "outside")], ids=str)
@pytest.mark.parametrize("kind", ["reentrant", "not reentrant"])
def test_graphs_in_checkpoints(kind, places):
    torch._dynamo.reset()
    block = Block(0.4)
    graph = torch.compile(block, backend="aot_eager")
    expected = gradients(graph, block, places[0], places[1])
    found = gradients(lambda x: checkpoint(graph, x, **KINDS[kind]), block, *places)
    assert alike(found, expected)


def test_an_unknown_checkpoint_is_refused(monkeypatch):
    """Another version of PyTorch may keep its functions elsewhere."""
    from fovea.torch import _checkpoint

    block = Block(0.4)
    (x,) = tensors((2, 2, 8, 8), grad=True)
    monkeypatch.setattr(_checkpoint, "_KEPT", {"CheckpointFunction": "elsewhere", "_CheckpointFrame": "elsewhere"})
    for kind in ("reentrant", "not reentrant"):
        with fovea.torch.patched(), pytest.raises(RuntimeError, match="torch.utils.checkpoint .* not known"):
            checkpoint(block, x, **KINDS[kind])


def test_inference_looks_at_nothing(monkeypatch):
    from fovea.torch import _checkpoint

    def looked(*args):
        raise AssertionError

    monkeypatch.setattr(_checkpoint, "_wrap", looked)
    (x,) = tensors((2, 2, 8, 8))
    with fovea.torch.patched(), warnings.catch_warnings():
        with torch.no_grad():
            sdpa(x, x, x)
        with torch.inference_mode():
            sdpa(x, x, x)
        sdpa(x.requires_grad_(), x, x).sum().backward()
