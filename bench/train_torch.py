"""The updates of `fovea bench train` by PyTorch, eager: the same layers, sizes and batch, random values.

    .venv/bin/python bench/train_torch.py [--models transformer,base,rnn] [--threads 1,2] [--rounds 5] [--updates 6]

Prints milliseconds an update, the median of all turns, by the number of threads. Beside it runs `fovea bench train`.
Layers, dropout and the loss are those of Fovea's models: no dropout of weights or inside a feed-forward part, no norm
behind the last layer, the output layer tied to the embeddings, label smoothing. The RNN multiplies all words of the
decoder at once, and its steps are written in Python, as PyTorch has no layer for a decoder with attention.
"""

import argparse
import math
import statistics
import time
from typing import Callable

import torch
import torch.nn.functional as F
from torch import nn

VOCABULARY = 9712


def lengths(count: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(8, 21, (count,), generator=generator)


class Batch:
    """Ids are [sentences, longest]; those behind a sentence's length do not count."""

    def __init__(self, source: torch.Tensor, target: torch.Tensor, source_lengths: torch.Tensor, target_lengths: torch.Tensor) -> None:
        self.source, self.target, self.source_lengths, self.target_lengths = source, target, source_lengths, target_lengths
        self.source_padding = torch.arange(self.source.shape[1])[None] >= self.source_lengths[:, None]
        target_padding = torch.arange(self.target.shape[1])[None] >= self.target_lengths[:, None]
        self.wanted = self.target.masked_fill(target_padding, -1)


def random_batch(count: int) -> Batch:
    of = [lengths(count, seed) for seed in (1, 2)]
    return Batch(*[torch.randint(4, VOCABULARY, (count, int(one.max()))) for one in of], *of)


class Translator(nn.Module):
    def __init__(self, vocabulary: int, dim: int, inner: int, heads: int, layers: int, dropout: float) -> None:
        super().__init__()
        self.dim, self.embedding, self.dropout = dim, nn.Embedding(vocabulary, dim), nn.Dropout(dropout)
        self.layers = nn.Transformer(dim, heads, layers, layers, inner, dropout, batch_first=True)
        self.layers.encoder.norm = self.layers.decoder.norm = None
        for layer in [*self.layers.encoder.layers, *self.layers.decoder.layers]:
            layer.dropout, layer.self_attn.dropout = nn.Identity(), 0.0
        for layer in self.layers.decoder.layers:
            layer.multihead_attn.dropout = 0.0
        self.bias = nn.Parameter(torch.zeros(vocabulary))
        positions, rates = torch.arange(64.0)[:, None], torch.exp(torch.arange(0, dim, 2) * -(math.log(1e4) / dim))
        self.register_buffer("positions", torch.cat([torch.sin(positions * rates), torch.cos(positions * rates)], 1))

    def names(self) -> "dict[str, list[str]]":
        parts = {"norm1": ["self_attn_layer_norm"], "norm2": ["final_layer_norm"], "linear1": ["fc1"], "linear2": ["fc2"]}
        in_decoder = {"norm2": ["encoder_attn_layer_norm"], "norm3": ["final_layer_norm"]}
        names = {"embedding.weight": ["model.shared.weight"], "bias": ["final_logits_bias"]}
        for side in ("encoder", "decoder"):
            of_side = parts | in_decoder if side == "decoder" else parts
            for own, theirs in [("self_attn", "self_attn")] + [("multihead_attn", "encoder_attn")] * (side == "decoder"):
                of_side[own + ".in_proj_"] = [f"{theirs}.{one}_proj" for one in "qkv"]
                of_side[own + ".out_proj"] = [f"{theirs}.out_proj"]
            for n in range(len(getattr(self.layers, side).layers)):
                for own, theirs in of_side.items():
                    for kind in ("weight", "bias"):
                        name = own + kind if own.endswith("_") else f"{own}.{kind}"
                        names[f"layers.{side}.layers.{n}.{name}"] = [f"model.{side}.layers.{n}.{one}.{kind}" for one in theirs]
        return names

    def rows(self, ids: torch.Tensor) -> torch.Tensor:
        return self.dropout(self.embedding(ids) * math.sqrt(self.dim) + self.positions[: ids.shape[1]])

    def forward(self, batch: Batch) -> torch.Tensor:
        causal = nn.Transformer.generate_square_subsequent_mask(batch.target.shape[1]).isinf()
        rows = self.layers(
            self.rows(batch.source),
            self.rows(batch.target),
            tgt_mask=causal,
            tgt_is_causal=True,
            src_key_padding_mask=batch.source_padding,
            memory_key_padding_mask=batch.source_padding,
        )
        logits = F.linear(rows[batch.wanted >= 0], self.embedding.weight, self.bias)
        return F.cross_entropy(logits, batch.wanted[batch.wanted >= 0], label_smoothing=0.1)


class Recurrent(nn.Module):
    """The RNN of Bahdanau et al. 2015 with GRUs: attention reads the state before each step."""

    def __init__(self, vocabulary: int, width: int = 128, hidden: int = 256, dropout: float = 0.2) -> None:
        super().__init__()
        self.embedding, self.dropout, self.hidden = nn.Embedding(vocabulary, width), nn.Dropout(dropout), hidden
        self.encoder = nn.GRU(width, hidden, batch_first=True, bidirectional=True)
        self.start = nn.Linear(2 * hidden, hidden)
        # Of a GRU: the products of the word, of the context and of the state.
        self.of_word, self.of_context = nn.Linear(width, 3 * hidden), nn.Linear(2 * hidden, 3 * hidden, bias=False)
        self.of_state = nn.Linear(hidden, 3 * hidden)
        self.query, self.key = nn.Linear(hidden, hidden), nn.Linear(2 * hidden, hidden, bias=False)
        self.score = nn.Linear(hidden, 1, bias=False)
        self.end = nn.Linear(hidden + 2 * hidden + width, width)
        self.bias = nn.Parameter(torch.zeros(vocabulary))

    def names(self) -> "dict[str, list[str]]":
        names = {"embedding.weight": ["shared.weight"], "bias": ["output.bias"], "score.weight": ["attention.vector"]}
        for kind in ("weight", "bias"):
            for own, theirs in (("encoder.{}_l0", "encoder.forward"), ("encoder.{}_l0_reverse", "encoder.backward")):
                for side in ("ih", "hh"):
                    names[own.format(f"{kind}_{side}")] = [f"{theirs}.{kind}_{side}"]
            names |= {f"of_word.{kind}": [f"decoder.{kind}_ih"], f"of_state.{kind}": [f"decoder.{kind}_hh"]}
            for own, theirs in (("start", "bridge"), ("query", "attention.query"), ("end", "readout")):
                names[f"{own}.{kind}"] = [f"{theirs}.{kind}"]
        return names | {"of_context.weight": ["decoder.context.weight"], "key.weight": ["attention.key.weight"]}

    def step(self, gates: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        reset_in, update_in, new_in = gates.chunk(3, 1)
        reset_of, update_of, new_of = self.of_state(state).chunk(3, 1)
        update = torch.sigmoid(update_in + update_of)
        new = torch.tanh(new_in + torch.sigmoid(reset_in + reset_of) * new_of)
        return torch.lerp(new, state, update)

    def forward(self, batch: Batch) -> torch.Tensor:
        packed = nn.utils.rnn.pack_padded_sequence(
            self.dropout(self.embedding(batch.source)), batch.source_lengths, batch_first=True, enforce_sorted=False
        )
        states, ends = self.encoder(packed)
        memory = self.dropout(nn.utils.rnn.pad_packed_sequence(states, batch_first=True)[0])
        keys, state = self.key(memory), torch.tanh(self.start(torch.cat([ends[0], ends[1]], 1)))
        inputs, rows = self.dropout(self.embedding(batch.target)), []
        words = self.of_word(inputs)
        for step in range(batch.target.shape[1]):
            scores = self.score(torch.tanh(keys + self.query(state)[:, None]))[..., 0]
            weights = scores.masked_fill(batch.source_padding, -math.inf).softmax(-1)
            context = (weights[:, None] @ memory)[:, 0]
            state = self.step(words[:, step] + self.of_context(context), state)
            rows.append(torch.cat([state, context, inputs[:, step]], 1))
        ends = self.dropout(torch.tanh(self.end(torch.stack(rows, 1))))
        logits = F.linear(ends[batch.wanted >= 0], self.embedding.weight, self.bias)
        return F.cross_entropy(logits, batch.wanted[batch.wanted >= 0], label_smoothing=0.1)


MODELS: "dict[str, Callable[[int], nn.Module]]" = {
    "transformer": lambda vocabulary: Translator(vocabulary, 128, 256, 4, 4, 0.2),
    "base": lambda vocabulary: Translator(vocabulary, 512, 2048, 8, 6, 0.1),
    "rnn": Recurrent,
}


def load(model: nn.Module, tensors: "dict[str, torch.Tensor]") -> None:
    """Gives the model the weights of one of Fovea's. The model's names() says of which tensors, joined, each parameter is made.
    A tensor that nobody takes is an error, as is one that is missing."""
    taken = model.names()
    left = set(tensors) - {name for names in taken.values() for name in names}
    if left:
        raise ValueError(f"no place for Fovea's {min(left)}")
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(torch.cat([tensors[one] for one in taken[name]]).reshape(parameter.shape))


def first_update(model: nn.Module, batch: Batch) -> "tuple[float, float]":
    """The loss without dropout, in nats a word, and the norm of its gradient by all parameters."""
    model.eval()
    model.zero_grad()
    value = model(batch)
    value.backward()
    norm = torch.stack([parameter.grad.double().square().sum() for parameter in model.parameters()]).sum().sqrt()
    model.zero_grad()
    model.train()
    return value.item(), norm.item()


def updates(model: nn.Module, batch: Batch, compiled: bool = False, bf16: bool = False) -> "Callable[[], None]":
    """One update of the model at each call."""
    adam = torch.optim.Adam(model.parameters(), 1e-4, (0.9, 0.98))
    loss = torch.compile(model) if compiled else model

    def update() -> None:
        adam.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            value = loss(batch)
        value.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        adam.step()

    return update


def milliseconds(name: str, arguments: argparse.Namespace) -> "dict[int, float]":
    count = max(arguments.mini_batch_words // 14, 1)
    update = updates(MODELS[name](VOCABULARY), random_batch(count))
    update()
    times: "dict[int, list[float]]" = {threads: [] for threads in arguments.threads}
    for _ in range(arguments.rounds):
        for threads in arguments.threads:
            torch.set_num_threads(threads)
            begin = time.perf_counter()
            for _ in range(arguments.updates):
                update()
            times[threads].append((time.perf_counter() - begin) / arguments.updates * 1e3)
    return {threads: statistics.median(found) for threads, found in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default="transformer,rnn")
    parser.add_argument("--threads", type=lambda text: [int(n) for n in text.split(",")], default=[1, 2])
    parser.add_argument("--mini-batch-words", type=int, default=2048)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--updates", type=int, default=6)
    arguments = parser.parse_args()
    print(f"PyTorch {torch.__version__}, eager, f32: milliseconds an update")
    for name in arguments.models.split(","):
        for threads, found in milliseconds(name, arguments).items():
            print(f"{name:<12} {threads:>3} threads {found:>10.2f}", flush=True)


if __name__ == "__main__":
    main()
