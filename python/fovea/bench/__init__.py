"""The Python part of `fovea bench`: `python -m fovea.bench` compares with PyTorch on this machine, as ratios."""

from __future__ import annotations

import dataclasses
import functools
import random
import statistics
import time
from typing import Any, Callable, Iterator, Mapping

__all__ = ["Row", "attention_rows", "gpt_rows", "interleaved"]


@dataclasses.dataclass(frozen=True)
class Row:
    """One computation, timed in several implementations; seconds are medians of interleaved calls."""

    case: str
    seconds: dict[str, float]
    notes: dict[str, float] = dataclasses.field(default_factory=dict)

    def ratio(self, way: str) -> float:
        """The time of an implementation divided by PyTorch's."""
        return self.seconds[way] / self.seconds["torch"]


def interleaved(ways: Mapping[str, Callable[[], Any]], seconds: float) -> dict[str, float]:
    """Median seconds per call of each function. They are called in turn for about `seconds` in all, so that other
    load on the machine affects all alike. Each round has a new order: threads of the previous call may still be
    spinning."""
    samples: dict[str, list[float]] = {name: [] for name in ways}
    for call in ways.values():
        call()
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(next(iter(samples.values()))) < 3:
        for name, call in random.sample(list(ways.items()), len(ways)):
            begin = time.perf_counter()
            call()
            samples[name].append(time.perf_counter() - begin)
    return {name: statistics.median(found) for name, found in samples.items()}


# batch, heads, kv heads, query_len, key_len, head_dim, causal
_SHAPES = [
    (1, 2, 2, 4, 4, 8, False),
    (1, 1, 1, 16, 16, 64, False),
    (1, 8, 8, 1, 128, 64, False),
    (1, 8, 8, 128, 128, 64, False),
    (8, 12, 12, 128, 128, 64, False),
    (8, 8, 8, 128, 128, 64, True),
    (1, 16, 16, 1024, 1024, 64, True),
    (1, 16, 4, 1024, 1024, 128, False),
    (4, 32, 8, 1, 2048, 128, False),
]


def attention_rows(seconds: float, shapes: Any = _SHAPES) -> Iterator[Row]:
    """Forward, and forward and backward, of each shape in f32 and bf16."""
    import torch
    from torch.nn.functional import scaled_dot_product_attention as theirs

    import fovea
    import fovea.torch

    for dtype in (torch.float32, torch.bfloat16):
        for batch, heads, kv, rows, keys, dim, causal in shapes:
            generator = torch.Generator().manual_seed(0)
            sizes = ((batch, heads, rows, dim), (batch, kv, keys, dim), (batch, kv, keys, dim))
            q, k, v = (torch.randn(size, generator=generator).to(dtype) for size in sizes)
            mask = fovea.Causal() if causal else None
            options = {"is_causal": causal, "enable_gqa": kv != heads}
            calls = {
                "torch": lambda q, k, v: theirs(q, k, v, **options),
                "fovea.torch": lambda q, k, v: fovea.torch.scaled_dot_product_attention(q, k, v, **options),
                "fovea": lambda q, k, v: fovea.attention(q, k, v, mask=mask),
            }
            label = f"{str(dtype)[6:]} {[*sizes[0]]} of {[*sizes[1]]}{', causal' if causal else ''}"
            with torch.no_grad():
                ways = {name: functools.partial(call, q, k, v) for name, call in calls.items()}
                yield Row(f"forward {label}", interleaved(ways, seconds))
            leaves = [x.requires_grad_() for x in (q, k, v)]
            along = torch.randn(sizes[0], generator=generator).to(dtype)

            def both(call: Callable[..., Any]) -> Any:
                return torch.autograd.grad(call(*leaves), leaves, along)

            ways = {name: functools.partial(both, call) for name, call in calls.items()}
            yield Row(f"forward and backward {label}", interleaved(ways, seconds))


def gpt_rows(steps: int) -> Iterator[Row]:
    """A training step of a small GPT, with PyTorch's attention and with Fovea's in the same model."""
    from . import gpt

    theirs, ours = gpt.train_both(steps)
    apart = [abs(a - b) for a, b in zip(theirs.losses, ours.losses)]
    notes = {
        "first loss": theirs.losses[0],
        "last loss": theirs.losses[-1],
        "last loss under fovea": ours.losses[-1],
        "largest difference": max(apart),
        "mean difference": statistics.fmean(apart),
    }
    medians = {"torch": statistics.median(theirs.seconds), "fovea.torch": statistics.median(ours.seconds)}
    yield Row(f"a step of a GPT of 1.8 million weights, {steps} steps", medians, notes)
