"""`fovea.torch.patched(report=True)`: calls that were served, calls that were not and why, and attention computed without such a call."""

from __future__ import annotations

import threading
import warnings

import pytest
from torch_support import tensors, torch

import fovea
import fovea.torch

sdpa = torch.nn.functional.scaled_dot_product_attention


def attend():
    (x,) = tensors((1, 2, 6, 8))
    return torch.nn.functional.scaled_dot_product_attention(x, x, x)


def test_served_calls_are_counted_by_their_entry_point():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with fovea.torch.patched(report=True) as report:
            for _ in range(3):
                attend()
    assert (report.served, report.passed_on, report.elsewhere) == (3, 0, {})
    assert report.served_by == {"torch.nn.functional.scaled_dot_product_attention": 3}
    assert str(report).splitlines()[0] == "Fovea served 3 calls of attention." and "look for" not in str(report)
    attend()
    assert report.served == 3
    assert isinstance(report, fovea.torch.Report) and "3 served" in repr(report)


@pytest.mark.filterwarnings("ignore")
def test_calls_that_are_passed_on_say_why():
    (x,) = tensors((1, 2, 6, 8))
    meta = torch.empty(1, 2, 6, 8, device="meta")
    nested = torch.nested.nested_tensor([torch.ones(2, 6, 8), torch.ones(2, 4, 8)])
    jagged = torch.nested.nested_tensor([torch.ones(6, 2, 8), torch.ones(4, 2, 8)], layout=torch.jagged)
    whole = torch.ones(1, 2, 6, 8, dtype=torch.int64)
    attempts = [
        (lambda: sdpa(meta, meta, meta), ["query", "on meta"]),
        (lambda: sdpa(nested, nested, nested), ["query", "dense tensor"]),
        (lambda: sdpa(*(3 * [jagged.transpose(1, 2)])), ["query", "NestedTensor"]),
        (lambda: sdpa(whole, whole, whole), ["query", "f32, f64, bf16 or f16", "int64"]),
        (lambda: sdpa(x, x.float(), x.float()), ["key", "dtype of the query"]),
        (lambda: sdpa(x, x, x, torch.ones(6, 6), is_causal=True), ["is_causal"]),
        (lambda: sdpa(x, x, x, torch.zeros(6, 6, dtype=torch.float16)), ["attn_mask", "float16"]),
        (lambda: torch.func.vmap(sdpa)(x, x, x), ["torch.func"]),
        (lambda: _forward_mode(x), ["forward-mode"]),
    ]
    for call, words in attempts:
        with fovea.torch.patched(report=True) as report:
            attend()
            try:
                call()
            except RuntimeError:  # PyTorch's own error, for what it does not take either
                pass
        assert report.served == 1 and report.passed_on == 1, words
        (reason,) = report.reasons
        assert all(word in reason for word in words), reason
        assert reason in str(report) and "that Fovea does not serve" in str(report)


def _forward_mode(x):
    from torch.autograd import forward_ad

    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x, torch.ones_like(x))
        sdpa(dual, x, x)


def test_a_block_that_served_nothing_warns_and_gives_hints():
    (x,) = tensors((2, 6, 8))
    with pytest.warns(UserWarning, match="Fovea served no call") as caught:
        with fovea.torch.patched(report=True) as report:
            torch.softmax(x @ x.transpose(-1, -2), -1) @ x
    (where,) = report.elsewhere
    assert "test_torch_report.py" in where and "in test_a_block_that" in where
    said = str(caught[0].message)
    assert caught[0].filename == __file__
    for word in ('attn_implementation="eager"', "need_weights", "torch.jit.script", "threads", where):
        assert word in said


def test_a_block_that_fails_does_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ZeroDivisionError), fovea.torch.patched(report=True):
            1 / 0
        with fovea.torch.patched():  # asked for no report
            pass


@pytest.mark.filterwarnings("ignore")
def test_layers_that_return_weights_are_named():
    layer = torch.nn.MultiheadAttention(8, 2, batch_first=True, dtype=torch.float64)
    (x,) = tensors((2, 6, 8))
    for training in (True, False):
        layer.train(training)
        with torch.set_grad_enabled(training), fovea.torch.patched(report=True) as report:
            layer(x, x, x)
        assert report.served == 0 and ["need_weights=True" in what for what in report.elsewhere] == [True]
        with torch.set_grad_enabled(training), fovea.torch.patched(report=True) as report:
            layer(x, x, x, need_weights=False)
        assert report.served == 1 and not report.elsewhere


@pytest.mark.filterwarnings("ignore")
def test_fast_paths_of_evaluation_do_not_bypass_the_mode():
    """Inside the block the native kernels of MultiheadAttention and TransformerEncoder are not used, nor are nested tensors."""
    one = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    model = torch.nn.TransformerEncoder(one, 2).eval()
    x = torch.randn(2, 6, 8, generator=torch.Generator().manual_seed(0))
    padding = torch.tensor([[False] * 6, [False] * 4 + [True] * 2])
    with torch.no_grad():
        expected = model(x, src_key_padding_mask=padding)
        with fovea.torch.patched(report=True) as report:
            found = model(x, src_key_padding_mask=padding)
    assert (report.served, report.passed_on, report.elsewhere) == (2, 0, {})
    assert torch.allclose(found[~padding], expected[~padding], atol=1e-5)


class _Scripted(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(x, x, x)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("make", [torch.jit.script, lambda m: torch.jit.trace(m, torch.ones(1, 2, 4, 8))])
def test_scripted_modules_are_named(make):
    scripted = make(_Scripted())
    with fovea.torch.patched(report=True) as report:
        scripted(torch.ones(1, 2, 4, 8))
    assert report.served == 0
    assert [what.split(":")[0] for what in report.elsewhere] == ["scripted module _Scripted"]
    scripted(torch.ones(1, 2, 4, 8))
    assert sum(report.elsewhere.values()) == 1
    assert not torch.nn.modules.module._global_forward_pre_hooks


def test_softmaxes_outside_of_attention_are_not_counted():
    with pytest.warns(UserWarning), fovea.torch.patched(report=True) as report:
        torch.softmax(torch.ones(3, 4), -1)
        torch.nn.functional.softmax(torch.ones(2, 3, 4), 1)
        torch.ones(2, 3, 4).softmax(dim=0)
    assert report.elsewhere == {}


def test_nested_blocks_count_to_each():
    with fovea.torch.patched(report=True) as outer:
        attend()
        with fovea.torch.patched(report=True) as inner:
            attend()
            with fovea.torch.patched():
                attend()
        with fovea.torch.patched(report=outer) as same:
            attend()
            torch.softmax(torch.ones(2, 3, 4), -1)
        assert same is outer
        attend()
    assert (outer.served, inner.served) == (5, 2)
    assert sum(outer.elsewhere.values()) == 1
    with fovea.torch.patched(report=inner):
        attend()
    assert (outer.served, inner.served) == (5, 3)


def test_threads_count_their_own_and_may_share():
    shared, own = [], []

    def work():
        with fovea.torch.patched(report=report), fovea.torch.patched(report=True) as mine:
            for _ in range(20):
                attend()
                sdpa(meta, meta, meta)
        own.append(mine)
        attend()  # outside: of no report

    meta = torch.empty(1, 2, 6, 8, device="meta")
    with fovea.torch.patched(report=True) as report:
        attend()
        threads = [threading.Thread(target=work) for _ in range(4)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        bare = threading.Thread(target=lambda: shared.append(attend()))
        bare.start(), bare.join()
    assert [mine.served for mine in own] == [20] * 4
    assert (report.served, report.passed_on) == (81, 80)


@pytest.mark.filterwarnings("ignore")
def test_recomputation_in_backward_counts():
    from torch.utils.checkpoint import checkpoint

    (x,) = tensors((1, 2, 6, 8), grad=True)
    with fovea.torch.patched(report=True) as report:
        checkpoint(lambda x: sdpa(x, x, x), x, use_reentrant=False).sum().backward()
    assert report.served == 2


@pytest.mark.filterwarnings("ignore")
def test_compiled_calls_count_when_they_run():
    (x,) = tensors((1, 2, 6, 8))
    call = torch.compile(lambda x: sdpa(x, x, x) + torch.softmax(x, -1), backend="aot_eager", fullgraph=True)
    with fovea.torch.patched(report=True) as report:
        expected = sdpa(x, x, x) + torch.softmax(x, -1)
        for _ in range(3):
            assert torch.allclose(call(x), expected)
    assert report.served_by["graphs of torch.compile, torch.export or a tracer"] == 3
    assert report.served == 4
    call(x)
    assert report.served == 4


def test_a_call_through_the_operator_counts_once():
    from torch.utils._python_dispatch import TorchDispatchMode

    class Seeing(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    with fovea.torch.patched(report=True) as report, Seeing():
        attend()
    assert report.served == 1


def test_many_reasons_stay_few():
    with pytest.warns(UserWarning), fovea.torch.patched(report=True) as report:
        for n in range(1, 101):
            x = torch.ones(1, 1, n, 8)
            with pytest.raises(RuntimeError):
                sdpa(x, torch.ones(1, 1, n, 4), x)
    assert report.passed_on == 100 and len(report.reasons) <= 65


def test_the_report_is_checked():
    with pytest.raises(fovea.InvalidArgument, match="report"):
        fovea.torch.patched(report="yes")
