"""Calls run on the threads of PyTorch's OpenMP runtime. Each test is a process of its own, since a runtime is found once."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest.importorskip("torch")

BEGIN = """
import os, sys, threading, torch, fovea
torch.set_num_threads(2)
fovea.set_num_threads(2)
q = torch.randn(1, 8, 300, 64, generator=torch.Generator().manual_seed(1))
n = q.numpy()

def threads():
    return {int(name) for name in os.listdir("/proc/self/task")}

def ticks(thread):
    text = open(f"/proc/self/task/{thread}/stat").read().rsplit(")", 1)[1].split()
    return int(text[11]) + int(text[12])  # user and system, by 10 ms

def work(call, seconds=0.5):
    import time
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        call()
"""


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", BEGIN + code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def joins() -> bool:
    return run("import fovea.torch; from fovea import _core; print(_core.join_threads_of_torch())") == "True\n"


needs_team = pytest.mark.skipif(
    not (sys.platform == "linux" and joins()), reason="this PyTorch works with no OpenMP runtime that Fovea knows"
)


@needs_team
def test_a_call_works_on_torchs_threads_alone() -> None:
    # A thread of its own sleeps beside PyTorch's, so it gets no time in half a second of calls.
    said = run(
        """
own = threads() - {os.getpid()}  # the pool's
work(lambda: torch.mm(q[0, 0], q[0, 0].T), 0.1)
theirs = threads() - own - {os.getpid()}
import fovea.torch
at_first = {thread: ticks(thread) for thread in threads()}
work(lambda: fovea.attention(q, q, q))
work(lambda: fovea.attention(n, n, n))
used = {thread: ticks(thread) - at_first[thread] for thread in at_first}
assert own and all(used[thread] == 0 for thread in own), (own, theirs, used)
assert threads() == set(at_first), "no thread was started"
print(sum(used[thread] for thread in theirs) > 20, sorted(used.values())[-1] > 20)
"""
    )
    assert said == "True True\n"


@needs_team
def test_bits_do_not_depend_on_whose_threads_work() -> None:
    said = run(
        """
states = lambda: fovea.recurrence(q, q, q, write=fovea.DeltaWrite(torch.full(q.shape[:3], 0.1)))
before = fovea.attention(n, n, n)  # the pool: fovea.torch is not imported
for theirs, ours in ((2, 2), (1, 2), (3, 2), (2, 1), (3, 3)):
    torch.set_num_threads(theirs), fovea.set_num_threads(ours)
    same = [fovea.attention(q, q, q), states()]
    if (theirs, ours) == (2, 2): first = same
    assert (same[0].numpy() == before).all() and torch.equal(same[1], first[1])
print("same")
"""
    )
    assert said == "same\n"


@needs_team
def test_a_forked_process_has_threads_of_its_own() -> None:
    said = run(
        """
import fovea.torch
want = fovea.attention(q, q, q).numpy()
child = os.fork()
if child == 0:
    same = (fovea.attention(n, n, n) == want).all()  # GCC's runtime would wait for ever here
    os._exit(0 if same else 3)
print(os.waitpid(child, 0)[1])
"""
    )
    assert said == "0\n"


@needs_team
def test_many_threads_of_python_call_at_once_and_errors_pass() -> None:
    said = run(
        """
import fovea.torch
want = fovea.attention(q, q, q)
wrong = []

def calls():
    for _ in range(20):
        if not torch.equal(fovea.attention(q, q, q), want): wrong.append("other bits")
        try:
            fovea.recurrence(q, q, q, decay=fovea.ScalarDecay(torch.ones(q.shape[:3])))
            wrong.append("took a log_decay above 0")
        except fovea.InvalidArgument:
            pass

many = [threading.Thread(target=calls) for _ in range(5)]
for one in many: one.start()
for one in many: one.join()
print(wrong)
"""
    )
    assert said == "[]\n"


def test_without_torch_the_pool_works() -> None:
    code = "import fovea; from fovea import _core; print(_core.join_threads_of_torch())"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"
