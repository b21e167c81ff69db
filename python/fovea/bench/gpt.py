"""A small GPT over characters in plain PyTorch, without any code for Fovea. It is trained twice at the same time,
with PyTorch's attention and, by `patched`, with Fovea's."""

from __future__ import annotations

import dataclasses
import random
import time
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import fovea.torch

_SUBJECTS = "the cat,a dog,my aunt,the old king,every child,one of them,the river,a small bird".split(",")
_VERBS = "sees,follows,does not know,remembers,calls,looks for,has lost,will find".split(",")
_OBJECTS = "the road,a red house,two ships,the morning,her letter,some bread,the sea,nothing".split(",")
_ENDS = [".", ", and then sleeps.", " in winter.", "?", " again.", ": so they say."]


def text(length: int, seed: int = 0) -> str:
    """Sentences of a small grammar, at least `length` characters in all."""
    draw = random.Random(seed)
    parts: list[str] = []
    size = 0
    while size < length:
        words = " ".join(draw.choice(words) for words in (_SUBJECTS, _VERBS, _OBJECTS))
        parts.append(words.capitalize() + draw.choice(_ENDS) + " ")
        size += len(parts[-1])
    return "".join(parts)


class Block(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        parts = self.qkv(self.norm1(x)).chunk(3, -1)
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        found = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(found.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Gpt(nn.Module):
    def __init__(self, symbols: int, context: int = 128, width: int = 192, heads: int = 6, layers: int = 4):
        super().__init__()
        self.symbols, self.positions = nn.Embedding(symbols, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, symbols)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.symbols(tokens) + self.positions(torch.arange(tokens.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


@dataclasses.dataclass
class Run:
    """One training: a loss and seconds for each step."""

    losses: list[float] = dataclasses.field(default_factory=list)
    seconds: list[float] = dataclasses.field(default_factory=list)


def train_both(
    steps: int, batch: int = 8, context: int = 128, dtype: Any = torch.float32, **size: int
) -> tuple[Run, Run]:
    """Trains (with PyTorch's attention, with Fovea's): the same model, data and seed, with alternating steps.

    Args:
        size: of the model, see `Gpt`.
    """
    written = text(100_000)
    symbols = sorted(set(written))
    data = torch.tensor([symbols.index(c) for c in written])
    models, optimizers = [], []
    for _ in range(2):
        torch.manual_seed(0)
        model = Gpt(len(symbols), context, **size).to(dtype)
        models.append(model)
        optimizers.append(torch.optim.AdamW(model.parameters(), 1e-3))
    runs = (Run(), Run())
    draw = torch.Generator().manual_seed(1)
    for _ in range(steps):
        begins = torch.randint(0, len(data) - context - 1, (batch, 1), generator=draw)
        rows = data[begins + torch.arange(context + 1)]
        for which in random.sample((0, 1), 2):
            model, optimizer, run = models[which], optimizers[which], runs[which]
            begin = time.perf_counter()
            if which:
                with fovea.torch.patched():
                    loss = _step(model, optimizer, rows)
            else:
                loss = _step(model, optimizer, rows)
            run.seconds.append(time.perf_counter() - begin)
            run.losses.append(loss)
    return runs


def _step(model: Gpt, optimizer: Any, rows: Tensor) -> float:
    logits = model(rows[:, :-1])
    loss = F.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss.item()
