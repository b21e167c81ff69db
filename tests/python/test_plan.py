"""Plans: capacities, kernels, threads, processes."""

from __future__ import annotations

import multiprocessing
import os
import threading
import time
from typing import Any

import cases
import numpy as np
import oracle
import pytest
from cases import Sizes

import fovea


def test_a_plan_gives_the_same_as_attention(rng: Any) -> None:
    sizes = Sizes()
    q, k, v = cases.arrays(rng, sizes, np.float32)
    spec: dict[str, Any] = dict(mods=[fovea.AlibiBias(fovea.alibi_slopes(4))], mask=fovea.Causal())
    run = fovea.plan(batch=2, num_query_heads=4, num_kv_heads=2, query_len=5, key_len=7, head_dim=6, value_dim=3, **spec)
    for mine, theirs in zip(
        run(q, k, v, return_lse=True, return_weights=True),
        fovea.attention(q, k, v, return_lse=True, return_weights=True, **spec),
    ):
        assert np.array_equal(mine, theirs)
    assert run.dtype == "f32" and run.kernel in [name for _, name, _ in fovea.list_kernels()]
    assert run.kernel in repr(run) and run.explain().startswith(run.kernel)
    assert run.explain() == fovea.explain(q, k, v, **spec)


def test_sizes_are_the_largest(rng: Any) -> None:
    """A decoding loop: keys grow, the plan stays."""
    run = fovea.plan(query_len=4, key_len=64, head_dim=8, dtype="f64", mask=fovea.Causal())
    keys = rng.standard_normal((1, 1, 64, 8))
    for step in (1, 2, 9, 64):
        for rows in (1, min(3, step)):
            q = keys[:, :, step - rows : step]
            got = run(q, keys[:, :, :step], keys[:, :, :step])
            wanted = oracle.attention(q, keys[:, :, :step], keys[:, :, :step], mask=fovea.Causal())[0]
            assert np.allclose(got, wanted, atol=1e-13)
    for wrong in (keys[:, :, :5], np.ones((2, 1, 1, 8)), np.ones((1, 2, 1, 8)), np.ones((1, 1, 1, 7))):
        with pytest.raises(fovea.InvalidArgument):
            run(wrong, keys, keys)


def test_key_lengths_of_a_plan(rng: Any) -> None:
    q, k, v = cases.arrays(rng, Sizes(), np.float64)
    mask = fovea.Causal() & fovea.KeyLengths()
    run = fovea.plan(
        batch=2, num_query_heads=4, num_kv_heads=2, query_len=5, key_len=7, head_dim=6, value_dim=3, dtype="f64", mask=mask
    )
    for lengths in ([7, 2], np.array([0, 5])):
        wanted = oracle.attention(q, k, v, mask=fovea.Causal() & fovea.KeyLengths(list(lengths)))[0]
        assert np.allclose(run(q, k, v, key_lengths=lengths), wanted, atol=1e-13)
    with pytest.raises(fovea.InvalidArgument, match="key_lengths"):
        run(q, k, v)


@pytest.mark.parametrize("kernel", dict.fromkeys(isa for isa, _, there in fovea.list_kernels() if there))
def test_kernels_agree(rng: Any, kernel: str) -> None:
    q, k, v = cases.arrays(rng, Sizes(1, 2, 1, 33, 70, 16, 16), np.float32)
    run = fovea.plan(
        num_query_heads=2, num_kv_heads=1, query_len=33, key_len=70, head_dim=16, kernel=kernel, mask=fovea.Causal()
    )
    # The tile kernels refuse f32 in full; the call then runs on a kernel of multiply-adds.
    assert kernel in run.kernel or (kernel in ("amx", "avx512bf16", "tiles") and run.kernel.endswith(" tiled"))
    wanted = oracle.attention(q, k, v, mask=fovea.Causal())[0]
    assert np.abs(run(q, k, v) - wanted).max() < 2e-5
    out = np.empty_like(q)
    assert run(q, k, v, out=out) is out and np.abs(out - wanted).max() < 2e-5


def test_threads_share_a_plan(rng: Any) -> None:
    run = fovea.plan(num_query_heads=4, query_len=64, head_dim=16, mask=fovea.Causal())
    inputs = [rng.standard_normal((1, 4, 64, 16)).astype(np.float32) for _ in range(8)]
    wanted = [run(x, x, x) for x in inputs]
    wrong: list[int] = []

    def work(n: int) -> None:
        for _ in range(30):
            if not np.array_equal(run(inputs[n], inputs[n], inputs[n]), wanted[n]):
                wrong.append(n)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for number in (1, 3, 2):  # while they run
        fovea.set_num_threads(number)
    for thread in threads:
        thread.join()
    assert not wrong


def test_other_threads_run_meanwhile() -> None:
    """The interpreter's lock is released: another thread counts while one call computes."""
    x = np.ones((1, 4, 3000, 64), np.float32)
    done = threading.Event()
    counted = 0

    def compute() -> None:
        fovea.attention(x, x, x)
        done.set()

    thread = threading.Thread(target=compute)
    thread.start()
    while not done.is_set():
        counted += 1
        time.sleep(0.0005)
    thread.join()
    # With the lock held the loop would get at most two turns: before the call and after it.
    assert counted > 10


def _child(sender: Any) -> None:
    x = np.ones((1, 4, 256, 16), np.float32)
    sender.send(float(fovea.attention(x, x, x).sum()))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_computes() -> None:
    fovea.set_num_threads(2)
    x = np.ones((1, 4, 256, 16), np.float32)
    wanted = float(fovea.attention(x, x, x).sum())  # now the pool has its threads, which a child does not inherit
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_child, args=(sender,))
    child.start()
    child.join(5)
    hung = child.is_alive()
    if hung:
        child.kill()
        child.join()
    assert not hung and child.exitcode == 0 and receiver.poll(5) and receiver.recv() == wanted


def test_spawned_child_computes() -> None:
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_child, args=(sender,))
    child.start()
    assert receiver.poll(30) and receiver.recv() == 4 * 256 * 16
    child.join(10)
    assert child.exitcode == 0
