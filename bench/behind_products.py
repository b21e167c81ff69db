"""Fovea's calls behind one of PyTorch's products, and alone: do two sets of threads meet on the same cores?

    python3 -m venv .venv && .venv/bin/pip install -r bench/requirements.txt && .venv/bin/pip install .
    .venv/bin/python bench/behind_products.py [--threads 2] [--rounds 15]

Each row runs in a process of its own, in turns: the call behind torch.bmm, then the same call again. The ratio is the median of
the quotients. Tensors run on PyTorch's threads, if it uses as many; NumPy's arrays run on Fovea's pool, because nothing imports
fovea.torch there. The last rows are decoding with one thread and with two, one call behind the other.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from typing import Any, Callable

ROWS = ("gated delta rule", "attention")
ARRAYS = ("tensors", "NumPy's arrays")


def call_of(row: str, as_tensors: bool) -> "Callable[[], Any]":
    import torch

    import fovea

    random = torch.Generator().manual_seed(7)

    def make(*shape: int) -> Any:
        x = torch.randn(shape, generator=random)
        return x if as_tensors else x.numpy()

    if row == "attention":
        q, k, v = (make(1, 16, 1024, 64) for _ in range(3))
        return lambda: fovea.attention(q, k, v)
    q, k, v = (make(1, 16, 2048, 64) * 64**-0.5 for _ in range(3))
    gates, beta = -abs(make(1, 16, 2048)), abs(make(1, 16, 2048)).clip(0, 1)
    return lambda: fovea.recurrence(q, k, v, decay=fovea.ScalarDecay(gates), write=fovea.DeltaWrite(beta))


def seconds_of(call: "Callable[[], Any]") -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def measure(row: str, as_tensors: bool, threads: int, rounds: int) -> None:
    import torch

    import fovea

    torch.set_num_threads(threads)
    fovea.set_num_threads(threads)
    call, x = call_of(row, as_tensors), torch.randn(512, 64, 64)
    call()
    behind, alone = [], []
    with torch.no_grad():
        for _ in range(rounds):
            for _ in range(15):
                torch.bmm(x, x)
            behind.append(seconds_of(call))
            time.sleep(0.05)  # PyTorch's threads sleep by now
            call()
            alone.append(seconds_of(call))
    ratio = statistics.median(b / a for b, a in zip(behind, alone))
    print(f"{row:18} {ARRAYS[not as_tensors]:15} {threads} threads {statistics.median(alone) * 1e3:8.2f} ms alone, {ratio:5.2f} behind a product", flush=True)


def decode(keys: int, rounds: int) -> None:
    import torch

    import fovea.torch

    q, k, v = torch.randn(1, 8, 1, 64), torch.randn(1, 8, keys, 64), torch.randn(1, 8, keys, 64)
    times: "dict[int, list[float]]" = {1: [], 2: []}
    for _ in range(rounds):
        for threads, of in times.items():
            torch.set_num_threads(threads)
            fovea.set_num_threads(threads)
            for _ in range(50):
                fovea.torch.scaled_dot_product_attention(q, k, v)
            of.append(seconds_of(lambda: [fovea.torch.scaled_dot_product_attention(q, k, v) for _ in range(300)]) / 300)
    one, two = (statistics.median(of) for of in times.values())
    ratio = statistics.median(b / a for a, b in zip(*times.values()))
    print(f"decoding {keys:5} keys, 8 heads of 64: {one * 1e6:6.1f} us on one thread, {two * 1e6:6.1f} on two, ratio {ratio:.2f}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", help=argparse.SUPPRESS)  # one row, in a process of its own
    chosen = parser.parse_args()
    if chosen.only:
        row, arrays = chosen.only.split("/")
        measure(row, arrays == ARRAYS[0], chosen.threads, chosen.rounds)
        return 0
    for row in ROWS:
        for arrays in ARRAYS:
            same = [sys.executable, __file__, "--threads", str(chosen.threads), "--rounds", str(chosen.rounds)]
            subprocess.run([*same, "--only", f"{row}/{arrays}"], check=True)
    for keys in (128, 256, 512, 1024):
        decode(keys, chosen.rounds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
