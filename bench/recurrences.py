"""Recurrences beside what people run on a CPU today: transformers' fallback of the gated delta rule, ONNX Runtime's
LinearAttention, fla's chunked linear attention in PyTorch, and the loop over tokens of Mamba's selective scan.

    python3 -m venv .venv && .venv/bin/pip install -r bench/requirements.txt -r tests/requirements-outside.txt einops && .venv/bin/pip install .
    .venv/bin/python bench/recurrences.py [--threads 1,2] [--rounds 5] [--dtype bf16] [--only TEXT] [--markdown]

2,048 tokens in f32, 16 heads of 64 or 128; the scan has 1,024 channels of 16 states. With --dtype bf16 queries, keys and
values are bf16, in the rows beside transformers alone, whose fallback widens them. Results (outputs, or every gradient) are
compared first. Then both ways run in turns, and the median of each is divided by Fovea's: above 1 Fovea is faster. "backward" is
timed alone, behind a forward pass that is not.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import statistics
import sys
import time
from typing import Any, Callable, NamedTuple, Optional, Sequence

import torch
import torch.nn.functional as functional

import fovea
import fovea.torch

TOKENS, HEADS, CHANNELS, STATES = 2048, 16, 1024, 16
Operands = "dict[str, torch.Tensor]"
Way = Callable[..., torch.Tensor]  # of the operands; returns the output


class Row(NamedTuple):
    name: str
    backward: bool
    operands: Callable[[], Operands]
    ours: Way
    rival: str
    theirs: Callable[[int], Way]  # of a number of threads; raises ImportError where it is not installed
    bar: float  # the ratio that Fovea is built to reach


def delta_operands(dim: int) -> Callable[[], Operands]:
    def make() -> Operands:
        random = torch.Generator().manual_seed(7)
        query, key, value = (torch.randn(1, TOKENS, HEADS, dim, generator=random) for _ in range(3))
        gate, beta = (torch.randn(1, TOKENS, HEADS, generator=random) for _ in range(2))
        unit = functional.normalize
        return {"q": unit(query, dim=-1), "k": unit(key, dim=-1), "v": value, "g": functional.logsigmoid(gate + 2), "beta": beta.sigmoid()}

    return make


def linear_operands() -> Operands:
    random = torch.Generator().manual_seed(7)
    return {name: torch.randn(1, TOKENS, HEADS, 128, generator=random) * 128**-0.25 for name in "qkv"}


def scan_operands() -> Operands:
    random = torch.Generator().manual_seed(7)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=random)

    rates = -torch.arange(1, STATES + 1).float().expand(CHANNELS, STATES).contiguous()
    return {
        "u": normal(1, CHANNELS, TOKENS),
        "delta": functional.softplus(normal(1, CHANNELS, TOKENS) - 4),
        "A": rates,
        "B": normal(1, STATES, TOKENS),
        "C": normal(1, STATES, TOKENS),
        "D": normal(CHANNELS),
    }


def transformers_delta(threads: int) -> Way:
    from transformers.models.qwen3_next.modeling_qwen3_next import torch_chunk_gated_delta_rule as fallback

    fallback = getattr(fallback, "__wrapped__", fallback)
    return lambda q, k, v, g, beta: fallback(q, k, v, g, beta)[0]


def onnx_delta(threads: int) -> Way:
    from rivals_onnx import _Onnx

    session: Any = None

    def run(**operands: torch.Tensor) -> torch.Tensor:
        nonlocal session
        of = {"q": "query", "k": "key", "v": "value", "g": "decay", "beta": "beta"}
        feeds = {of[name]: x.reshape(1, TOKENS, -1).numpy() for name, x in operands.items()}
        if session is None:
            names = ["query", "key", "value", "", "decay", "beta"]
            scale = operands["q"].shape[-1] ** -0.5
            heads = {"q_num_heads": HEADS, "kv_num_heads": HEADS}
            outputs = ["output", "present_state"]
            session = _Onnx(threads).session("LinearAttention", feeds, names, outputs, update_rule="gated_delta", scale=scale, **heads)
        return torch.from_numpy(session.run(["output"], feeds)[0]).view(1, TOKENS, HEADS, -1)

    return run


def fla_linear(threads: int) -> Way:
    # The package itself needs Triton, so its file is loaded by path.
    try:
        files = importlib.metadata.files("fla-core") or []
    except importlib.metadata.PackageNotFoundError as error:
        raise ImportError(str(error)) from None
    file = next(file for file in files if str(file) == "fla/ops/linear_attn/naive.py")
    spec = importlib.util.spec_from_file_location("naive_of_fla", str(file.locate()))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return lambda q, k, v: module.naive_chunk_linear_attn(q, k, v)


def scan_loop(threads: int) -> Way:
    """One token after the other, as Mamba's layers run where no kernel is installed."""

    def run(u: torch.Tensor, delta: torch.Tensor, A: torch.Tensor, B: torch.Tensor, C: torch.Tensor, D: torch.Tensor) -> torch.Tensor:
        decay = torch.exp(delta.transpose(1, 2)[..., None] * A)
        write = (delta * u).transpose(1, 2)[..., None] * B.transpose(1, 2)[:, :, None]
        state, outputs = torch.zeros(1, CHANNELS, STATES), []
        for token in range(TOKENS):
            state = decay[:, token] * state + write[:, token]
            outputs.append(torch.matmul(state, C[:, :, token, None])[..., 0])
        return torch.stack(outputs, 2) + D[:, None] * u

    return run


def our_delta(**x: torch.Tensor) -> torch.Tensor:
    return fovea.torch.gated_delta_rule(**x)[0]


def our_linear(**x: torch.Tensor) -> torch.Tensor:
    return fovea.torch.linear_attention(**x, normalize=False)[0]


ROWS = [
    *(Row(f"gated delta rule, d {dim}", False, delta_operands(dim), our_delta, "transformers", transformers_delta, bar) for dim, bar in ((64, 10), (128, 8))),
    *(Row(f"gated delta rule, d {dim}", False, delta_operands(dim), our_delta, "ONNX Runtime", onnx_delta, 2) for dim in (64, 128)),
    *(Row(f"gated delta rule, d {dim}", True, delta_operands(dim), our_delta, "transformers", transformers_delta, bar) for dim, bar in ((64, 10), (128, 7))),
    Row("linear attention, d 128", True, linear_operands, our_linear, "fla, chunks", fla_linear, 4),
    Row("selective scan", False, scan_operands, fovea.torch.selective_scan, "loop over tokens", scan_loop, 20),
]


def in_bf16(operands: Operands) -> Operands:
    return {name: x.bfloat16() if name in ("q", "k", "v") else x for name, x in operands.items()}


def run(row: Row, way: Way, operands: Operands) -> "tuple[float, Sequence[torch.Tensor]]":
    """Seconds, and the results."""
    if not row.backward:
        with torch.no_grad():
            begin = time.perf_counter()
            output = way(**operands)
            return time.perf_counter() - begin, [output]
    inputs = {name: x.clone().requires_grad_() for name, x in operands.items()}
    output = way(**inputs)
    d_output = torch.randn(output.shape, generator=torch.Generator().manual_seed(8)).to(output.dtype)
    begin = time.perf_counter()
    output.backward(d_output)
    return time.perf_counter() - begin, [x.grad for x in inputs.values()]  # type: ignore[misc]


def measure(row: Row, threads: int, rounds: int, dtype: str) -> "Optional[tuple[float, float]]":
    """Median seconds of Fovea and of the rival; None where the rival is not installed."""
    try:
        theirs = row.theirs(threads)
    except ImportError as error:
        print(f"# {row.rival}: {error}", file=sys.stderr)
        return None
    operands = row.operands() if dtype == "f32" else in_bf16(row.operands())
    # In f32 sums of 2,048 terms in another order: their errors grow with its root, 45 roundings of 6e-8. In bf16 results are
    # rounded, and Fovea's products round their operands: a few roundings of 2^-9, which are independent.
    tolerance = 1e-4 if dtype == "f32" else 2e-2
    expected, got = (run(row, way, operands)[1] for way in (theirs, row.ours))
    for ours, reference in zip(got, expected):
        difference = float((ours.float() - reference.float()).norm() / reference.float().norm())
        if not difference <= tolerance:
            raise SystemExit(f"{row.name}: Fovea and {row.rival} differ by {difference}")
    seconds: "list[list[float]]" = [[], []]
    for _ in range(rounds):
        for way, of in zip((row.ours, theirs), seconds):
            of.append(run(row, way, operands)[0])
    return statistics.median(seconds[0]), statistics.median(seconds[1])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dtype", default="f32", choices=("f32", "bf16"))
    parser.add_argument("--only", default="", help="rows whose text contains this")
    parser.add_argument("--markdown", action="store_true")
    chosen = parser.parse_args()
    if chosen.markdown:
        print("| | threads | Fovea, ms | beside | ratio | bar |\n|---|---:|---:|---|---:|---:|")
    for row in ROWS:
        text = f"{row.name}, {'backward' if row.backward else 'forward'}"
        if chosen.only not in f"{text}, {row.rival}" or (chosen.dtype == "bf16" and row.rival != "transformers"):
            continue
        for threads in map(int, chosen.threads.split(",")):
            torch.set_num_threads(threads)
            fovea.set_num_threads(threads)
            medians = measure(row, threads, chosen.rounds, chosen.dtype)
            if medians is None:
                continue
            own, ratio = medians[0] * 1e3, medians[1] / medians[0]
            if chosen.markdown:
                print(f"| {text} | {threads} | {own:.1f} | {row.rival} | {ratio:.1f} | {row.bar:g} |", flush=True)
            else:
                print(f"{text:36} {threads} threads  fovea {own:8.1f} ms  {row.rival} {ratio:6.1f} (bar {row.bar:g})", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
