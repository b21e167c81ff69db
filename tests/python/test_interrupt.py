"""Ctrl-C ends a running call; signals whose handlers do not raise leave its result unchanged.

Every call here runs in a process of its own, with so much work that two threads need minutes for it; the process is
given one. No test measures time."""

from __future__ import annotations

import signal

import pytest
from test_errors import run_alone

pytestmark = pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="no signals of POSIX")

# 10^13 multiplications and additions: query heads share the memory of one.
START = """
import signal, sys, threading, time
import numpy as np
import fovea

fovea.set_num_threads(THREADS)
q = np.broadcast_to(np.ones((1, 1, 16384, 64)), (1, 32, 16384, 64))
k = np.ones((1, 1, 131072, 64))
v = np.ones((1, 1, 131072, 8))
d = np.ones((1, 32, 16384, 8))
main = threading.main_thread()

def is_in(name):
    frame = sys._current_frames()[main.ident]
    while frame is not None and frame.f_code.co_name != name:
        frame = frame.f_back
    return frame is not None

def press_ctrl_c(inside):
    while not is_in(inside):
        time.sleep(0.01)
    time.sleep(0.3)  # until the engine runs
    assert is_in(inside)
    signal.pthread_kill(main.ident, signal.SIGINT)

def interrupted(call, inside):
    signal.signal(signal.SIGINT, signal.default_int_handler)
    presser = threading.Thread(target=press_ctrl_c, args=(inside,), daemon=True)
    presser.start()
    try:
        call()
    except KeyboardInterrupt:
        print("interrupted")
    presser.join()
    small = np.ones((1, 2, 64, 16), np.float32)
    assert (fovea.attention(small, small, small) == 1).all()  # the next call works
"""


def run(code: str, threads: int = 2) -> str:
    return run_alone(START.replace("THREADS", str(threads)) + code, seconds=100)


@pytest.mark.parametrize("threads", [1, 2])
def test_forward(threads: int) -> None:
    said = run(
        "out = np.full((1, 32, 16384, 8), np.nan)\n"
        "interrupted(lambda: fovea.attention(q, k, v, out=out), 'forward')\n"
        "assert np.isnan(out).any()\n",
        threads,
    )
    assert said == "interrupted\n"


# A forward pass of that size would not end, so its results are invented.
NO_FORWARD = """
def no_forward(plan, call, inputs, shape, dtype, ask, out=None):
    return {"output": make(d.shape), "log_sum_exp": make(d.shape[:3])}
"""


def test_backward() -> None:
    said = run(
        "import fovea._engine\nmake = np.zeros\n" + NO_FORWARD + "def call():\n"
        "    forward, fovea._engine.forward = fovea._engine.forward, no_forward\n"
        "    try: fovea.gradients(q, k, v, d)\n"
        "    finally: fovea._engine.forward = forward\n"
        "interrupted(call, 'backward')\n"
    )
    assert said == "interrupted\n"


@pytest.mark.parametrize(
    "spec",
    ["score=fovea.Additive(None, None, np.ones(64))", "normalizer=fovea.Sparsemax()", "mods=[fovea.SoftCap(9)]"],
)
def test_other_kernels(spec: str) -> None:
    assert run(f"interrupted(lambda: fovea.attention(q, k, v, {spec}), 'forward')\n") == "interrupted\n"


def test_calls_of_other_threads_continue() -> None:
    said = run(
        "done, wrong = threading.Event(), []\n"
        "def work():\n"
        "    x = np.ones((1, 4, 200, 32), np.float32)\n"
        "    while not done.is_set():\n"
        "        if not (fovea.attention(x, x, x) == 1).all(): wrong.append(1)\n"
        "other = threading.Thread(target=work)\n"
        "other.start()\n"
        "interrupted(lambda: fovea.attention(q, k, v), 'forward')\n"
        "done.set()\n"
        "other.join()\n"
        "assert not wrong\n"
    )
    assert said == "interrupted\n"


def test_a_handler_that_raises_nothing() -> None:
    """The handler runs within the call and may call the library itself; the call's result is unchanged."""
    said = run(
        "rng = np.random.default_rng(1)\n"
        "x = rng.standard_normal((1, 8, 2048, 64)).astype('f4')\n"
        "small = x[:, :, :100]\n"
        "mask = fovea.Causal()\n"
        "wanted, wanted_small = (fovea.attention(y, y, y, mask=mask) for y in (x, small))\n"
        "seen = []\n"
        "def handler(number, frame):\n"
        "    within = frame.f_code.co_name == 'forward'\n"
        "    seen.append(within and np.array_equal(fovea.attention(small, small, small, mask=mask), wanted_small))\n"
        "signal.signal(signal.SIGALRM, handler)\n"
        "signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)\n"
        "while sum(seen) < 3:\n"
        "    assert np.array_equal(fovea.attention(x, x, x, mask=mask), wanted)\n"
        "signal.setitimer(signal.ITIMER_REAL, 0)\n"
        "print('went on')\n"
    )
    assert said == "went on\n"


def test_an_exception_of_a_handler_is_passed_on() -> None:
    said = run(
        "class Stop(Exception): pass\n"
        "def handler(number, frame): raise Stop('enough')\n"
        "signal.signal(signal.SIGALRM, handler)\n"
        "signal.setitimer(signal.ITIMER_REAL, 0.3)\n"
        "try: fovea.attention(q, k, v)\n"
        "except Stop as stop: print(stop)\n"
    )
    assert said == "enough\n"
