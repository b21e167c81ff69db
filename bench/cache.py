"""A step of decoding over Fovea's KvCache beside the caches that people use: transformers' DynamicCache and StaticCache under
PyTorch's SDPA, and ONNX Runtime's GroupQueryAttention with its buffers shared.

    python3 -m venv .venv && .venv/bin/pip install -r bench/requirements.txt transformers==5.23.0 && .venv/bin/pip install .
    .venv/bin/python bench/cache.py [--threads 1,2] [--rounds 9] [--only TEXT] [--markdown]

A row is one layer: every sequence gets the keys and values of the new tokens, and its queries attend to all rows. The outputs
are compared first. Then all contenders run in turns, and the median of each is divided by Fovea's: above 1 Fovea is faster.
"beams" is a step of a search behind one prompt: the rows are chosen anew (permute, reorder_cache), then a step is taken.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from typing import Any, Callable, NamedTuple, Optional

import numpy as np
import torch
import torch.nn.functional as functional

import fovea

HEADS, KV_HEADS, DIM = 32, 8, 128


class Row(NamedTuple):
    name: str
    batch: int
    length: int  # rows of each sequence before the step
    rows: int  # of the step
    dtype: str
    beams: bool = False


ROWS = [
    *(Row("step", batch, length, 1, dtype) for dtype in ("float32", "bfloat16") for batch, length in ((1, 4096), (1, 32768), (16, 4096))),
    *(Row("512 rows", 1, 4096, 512, dtype) for dtype in ("float32", "bfloat16")),
    *(Row("beams", 5, 2048, 1, dtype, True) for dtype in ("float32", "bfloat16")),
]


class Data:
    def __init__(self, row: Row) -> None:
        random = torch.Generator().manual_seed(7)
        dtype = getattr(torch, row.dtype)

        def normal(*shape: int) -> torch.Tensor:
            return torch.randn(*shape, generator=random).to(dtype)

        batch = row.batch
        self.keys, self.values = (normal(1 if row.beams else batch, KV_HEADS, row.length, DIM) for _ in range(2))
        if row.beams:
            self.keys, self.values = (x.expand(batch, -1, -1, -1) for x in (self.keys, self.values))
        self.key, self.value = (normal(batch, KV_HEADS, row.rows, DIM) for _ in range(2))
        self.query = normal(batch, HEADS, row.rows, DIM)
        self.order = [0, 0, 2, 1, 4]


class Contender:
    """`step` reads the new rows and returns the output; `back` forgets them and is not timed."""

    name = ""

    def step(self) -> Any:
        raise NotImplementedError

    def back(self) -> None:
        raise NotImplementedError


class Fovea(Contender):
    name = "fovea"

    def __init__(self, row: Row, data: Data, threads: int) -> None:
        self.row, self.data = row, data
        layer = fovea.CacheLayer(num_kv_heads=KV_HEADS, head_dim=DIM, dtype={"float32": "f32", "bfloat16": "bf16"}[row.dtype])
        self.cache = fovea.KvCache([layer])
        first = self.cache.start()
        self.sequences = [first]
        if row.beams:
            self.read(first, data.keys[:1], data.values[:1])
            self.sequences += [self.cache.fork(first) for _ in range(1, row.batch)]
        else:
            self.sequences += [self.cache.start() for _ in range(1, row.batch)]
            for n, sequence in enumerate(self.sequences):
                self.read(sequence, data.keys[n : n + 1], data.values[n : n + 1])

    def read(self, sequence: Any, keys: Any, values: Any) -> None:
        self.cache.reserve(sequence, keys.shape[2])
        self.cache.append(0, sequence, keys.contiguous(), values.contiguous())
        self.cache.commit(sequence)

    def step(self) -> Any:
        cache, data = self.cache, self.data
        if self.row.beams:
            cache.permute(self.sequences, data.order)
        for sequence in self.sequences:
            cache.reserve(sequence, self.row.rows)
        cache.append(0, self.sequences, data.key, data.value)
        out = fovea.attention(data.query, cache=cache[0], sequences=self.sequences, mask=fovea.Causal())
        for sequence in self.sequences:
            cache.commit(sequence)
        return out

    def back(self) -> None:
        for sequence in self.sequences:
            self.cache.truncate(sequence, self.row.length)


class Dynamic(Contender):
    name = "DynamicCache"

    def __init__(self, row: Row, data: Data, threads: int) -> None:
        from transformers import DynamicCache

        self.row, self.data, self.cache = row, data, DynamicCache()
        self.cache.update(data.keys.contiguous(), data.values.contiguous(), 0)

    def step(self) -> Any:
        data = self.data
        if self.row.beams:
            self.cache.reorder_cache(torch.tensor(data.order))
        keys, values = self.cache.update(data.key, data.value, 0)
        return functional.scaled_dot_product_attention(data.query, keys, values, attn_mask=mask_of(self.row, keys.shape[2]), enable_gqa=True)

    def back(self) -> None:
        self.cache.crop(-self.row.rows)


def mask_of(row: Row, keys: int) -> Optional[torch.Tensor]:
    """None for one row over exactly the keys that it sees."""
    seen = row.length + row.rows
    if row.rows == 1 and keys == seen:
        return None
    return torch.arange(keys)[None, :] <= torch.arange(row.length, seen)[:, None]


class Static(Contender):
    """A StaticCache with exactly the rows that are needed. Longer buffers, as most programs have, would cost it more."""

    name = "StaticCache"

    def __init__(self, row: Row, data: Data, threads: int) -> None:
        if row.beams:
            raise ValueError("transformers searches beams with a DynamicCache")
        from transformers import StaticCache
        from transformers.models.llama import LlamaConfig

        self.row, self.data = row, data
        config = LlamaConfig(num_hidden_layers=1, hidden_size=HEADS * DIM, num_attention_heads=HEADS, num_key_value_heads=KV_HEADS)
        self.cache = StaticCache(config=config, max_cache_len=row.length + row.rows)
        self.cache.update(data.keys.contiguous(), data.values.contiguous(), 0)
        self.layer = self.cache.layers[0]
        self.position = self.layer.cumulative_length.clone()

    def step(self) -> Any:
        data = self.data
        keys, values = self.cache.update(data.key, data.value, 0)
        return functional.scaled_dot_product_attention(data.query, keys, values, attn_mask=mask_of(self.row, keys.shape[2]), enable_gqa=True)

    def back(self) -> None:
        self.layer.cumulative_length.copy_(self.position)


class Onnx(Contender):
    name = "ORT GQA"

    def __init__(self, row: Row, data: Data, threads: int) -> None:
        if row.beams or row.rows > 1:
            raise ValueError("a step of one row alone: beams would copy its buffers, and a prompt behind rows is refused")
        if row.dtype != "float32":
            raise ValueError("has no bf16 on a CPU")
        from rivals_onnx import OnnxGqa, _packed, _unpacked

        runtime = OnnxGqa(threads)
        feeds = {"query": _packed(data.query.numpy()), "key": _packed(data.key.numpy()), "value": _packed(data.value.numpy())}
        seen = row.length + 1
        for name, rows in (("key", data.keys), ("value", data.values)):
            feeds[f"past_{name}"] = np.zeros((row.batch, KV_HEADS, seen, DIM), np.float32)
            feeds[f"past_{name}"][:, :, : row.length] = rows.numpy()
        feeds["seqlens"], feeds["total"] = np.full(row.batch, seen - 1, np.int32), np.array(seen, np.int32)
        outputs = ["output", "present_key", "present_value"]
        self.session = runtime.session("GroupQueryAttention", feeds, list(feeds), outputs, num_heads=HEADS, kv_num_heads=KV_HEADS)
        shared = {"present_key": "past_key", "present_value": "past_value"}
        self.binding, output = runtime.bound(self.session, feeds, shared, feeds["query"])
        self.result = lambda: torch.from_numpy(_unpacked(output.numpy(), HEADS).copy())

    def step(self) -> Any:
        self.session.run_with_iobinding(self.binding)
        return self.result()

    def back(self) -> None:
        pass


def timed(step: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    step()
    return time.perf_counter() - begin


def measure(row: Row, threads: int, rounds: int) -> "dict[str, float]":
    """Contender → median seconds. Raises where two outputs differ by more than rounding."""
    data = Data(row)
    contenders: "list[Contender]" = []
    for kind in (Fovea, Dynamic, Static, Onnx):
        try:
            contenders.append(kind(row, data, threads))
        except ValueError as refusal:
            print(f"# {kind.name}: {refusal}", file=sys.stderr)
    expected = None
    for contender in contenders:
        got = contender.step().float()
        contender.back()
        expected = got if expected is None else expected
        difference, most = float((got - expected).abs().max()), 2e-5 if row.dtype == "float32" else 2e-2
        if not difference <= most * float(expected.abs().max()):
            raise SystemExit(f"{row}: {contender.name} differs from Fovea by {difference}")
    seconds: "dict[str, list[float]]" = {contender.name: [] for contender in contenders}
    for _ in range(rounds):
        for contender in contenders:
            for _ in range(4):  # one after the other, as in a loop of decoding; the first wakes threads
                seconds[contender.name].append(timed(contender.step))
                contender.back()
            del seconds[contender.name][-4]
    return {name: statistics.median(each) for name, each in seconds.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--only", default="", help="rows whose text contains this")
    parser.add_argument("--markdown", action="store_true")
    chosen = parser.parse_args()
    names = [kind.name for kind in (Dynamic, Static, Onnx)]
    heads = f"{HEADS}/{KV_HEADS} heads of {DIM}"
    if chosen.markdown:
        print(f"| {heads} | threads | Fovea, ms | " + " | ".join(names) + " |\n" + "|---|---:|---:|" + "---:|" * len(names))
    for row in ROWS:
        text = f"{row.name}, {row.batch} × {row.length}, {row.dtype}"
        if chosen.only not in text:
            continue
        for threads in map(int, chosen.threads.split(",")):
            torch.set_num_threads(threads)
            fovea.set_num_threads(threads)
            medians = measure(row, threads, chosen.rounds)
            own = medians["fovea"]
            ratios = [f"{medians[name] / own:.2f}" if name in medians else "-" for name in names]
            if chosen.markdown:
                print(f"| {text} | {threads} | {own * 1e3:.3f} | " + " | ".join(ratios) + " |", flush=True)
            else:
                print(f"{text:32} {threads} threads  fovea {own * 1e3:8.3f} ms  " + "  ".join(f"{n} {r}" for n, r in zip(names, ratios)), flush=True)
    return 0


if __name__ == "__main__":
    torch.set_grad_enabled(False)
    sys.exit(main())
