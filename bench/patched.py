"""Training steps of unchanged transformers models: PyTorch's own attention and `fovea.torch.patched()`, in turns.

    .venv/bin/python bench/patched.py [--models bert-base,gpt2] [--shapes 8x128,8x512] [--precisions bf16,f32] [--threads 2]

A step is the forward pass, the loss, the backward pass and AdamW, on random ids, with dropout everywhere that the
published configs have it (0.1, of attention's weights too). "bf16" has weights of bf16, "autocast" has weights of f32 under
`torch.autocast`. Nothing is downloaded: the weights are random. Loss and gradients of both ways are compared first, in
f32 and without dropout. A ratio is the median of PyTorch's seconds over Fovea's of the same round, with the range of
the rounds; above 1 Fovea is faster.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import pathlib
import statistics
import time
from typing import Any, Callable

import torch
import transformers as hf

import fovea
import fovea.torch

CONFIGS: dict[str, Callable[[], tuple[Any, Any]]] = {
    "bert-base": lambda: (hf.BertForMaskedLM, hf.BertConfig()),
    "gpt2": lambda: (hf.GPT2LMHeadModel, hf.GPT2Config()),
}
DROPOUTS = ("hidden_dropout_prob", "attention_probs_dropout_prob", "resid_pdrop", "embd_pdrop", "attn_pdrop")


class Model:
    def __init__(self, name: str, precision: str, dropout: float) -> None:
        torch.manual_seed(1)
        kind, config = CONFIGS[name]()
        for field in DROPOUTS:
            if hasattr(config, field):
                setattr(config, field, dropout)
        config._attn_implementation = "sdpa"
        self.model = kind(config)
        self.precision = precision
        if precision == "bf16":
            self.model.to(torch.bfloat16)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-5, fused=True)

    def loss(self, ids: torch.Tensor) -> torch.Tensor:
        cast = torch.autocast("cpu", torch.bfloat16) if self.precision == "autocast" else contextlib.nullcontext()
        with cast:
            loss: torch.Tensor = self.model(input_ids=ids, labels=ids).loss
        return loss

    def step(self, ids: torch.Tensor) -> None:
        self.optimizer.zero_grad()
        self.loss(ids).backward()
        self.optimizer.step()

    def gradients(self, ids: torch.Tensor) -> tuple[float, list[torch.Tensor]]:
        self.model.zero_grad()
        loss = self.loss(ids)
        loss.backward()
        return float(loss.detach()), [p.grad.clone() for p in self.model.parameters() if p.grad is not None]


def compare(name: str, ids: torch.Tensor) -> float:
    """The largest difference of a gradient over the largest of its tensor, without dropout in f32."""
    model = Model(name, "f32", 0.0)
    loss, theirs = model.gradients(ids)
    with fovea.torch.patched(report=True) as report:
        our_loss, ours = model.gradients(ids)
    if not report.served or report.passed_on:
        raise SystemExit(f"{name}: not all attention runs on Fovea:\n{report}")
    error = max(float((a - b).abs().max() / a.abs().max().clamp_min(1e-6)) for a, b in zip(theirs, ours))
    if abs(loss - our_loss) > 1e-4 * abs(loss) or error > 1e-2:
        raise SystemExit(f"{name}: losses {loss} and {our_loss}, gradients differ by {error:.1e}")
    return error


def seconds(call: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def measure(name: str, shape: str, precision: str, o: argparse.Namespace) -> dict[str, Any]:
    batch, length = (int(n) for n in shape.split("x"))
    model = Model(name, precision, o.dropout)
    ids = torch.randint(5, model.model.config.vocab_size, (batch, length))
    theirs: list[float] = []
    ours: list[float] = []
    for n in range(o.rounds + 1):
        theirs.append(seconds(lambda: model.step(ids)))
        with fovea.torch.patched(report=n == 0) as report:
            ours.append(seconds(lambda: model.step(ids)))
        if n == 0 and (not report.served or report.passed_on):
            raise SystemExit(f"{name}, {precision}: not all attention runs on Fovea:\n{report}")
    theirs, ours = theirs[1:], ours[1:]  # the first round warms up
    ratios = [a / b for a, b in zip(theirs, ours)]
    return {
        "model": name,
        "shape": shape,
        "precision": precision,
        "torch_seconds": statistics.median(theirs),
        "fovea_seconds": statistics.median(ours),
        "ratio": statistics.median(ratios),
        "least": min(ratios),
        "most": max(ratios),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(CONFIGS), help="any of: " + ", ".join(CONFIGS))
    parser.add_argument("--shapes", default="8x128,8x512")
    parser.add_argument("--precisions", default="bf16", help="any of: f32, bf16, autocast")
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=pathlib.Path)
    o = parser.parse_args()
    hf.logging.set_verbosity_error()
    torch.set_num_threads(o.threads)
    fovea.set_num_threads(o.threads)
    print(f"transformers {hf.__version__}, torch {torch.__version__}, {o.threads} threads, dropout {o.dropout}")
    results = []
    for name in o.models.split(","):
        error = compare(name, torch.randint(5, 30000, (2, 64)))
        print(f"\n{name}: gradients in f32 without dropout differ by {error:.1e} at most")
        print(f"{'precision':<10} {'batch':>8} {'PyTorch, ms':>12} {'Fovea, ms':>10} {'ratio':>6}   range")
        for precision in o.precisions.split(","):
            for shape in o.shapes.split(","):
                row = measure(name, shape, precision, o)
                results.append(row)
                line = f"{precision:<10} {shape:>8} {1e3 * row['torch_seconds']:>12.0f} {1e3 * row['fovea_seconds']:>10.0f}"
                print(f"{line} {row['ratio']:>6.2f}   {row['least']:.2f} to {row['most']:.2f}", flush=True)
    if o.json:
        o.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
