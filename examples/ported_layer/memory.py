"""Peak memory of the tutorials' self-attention and of the same layer on Fovea, as the table of docs/ported-layer.md:

    python examples/ported_layer/memory.py
    python examples/ported_layer/memory.py --lengths 512 1024 --embed-size 256 --heads 4

Each figure comes from a process of its own: the growth of ru_maxrss over what the process held when its layer and input
were made and both had run once on 16 positions. It needs PyTorch, and `resource`, which Windows lacks.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

LAYERS = {"theirs": "SelfAttention", "Fovea": "SelfAttentionOnFovea"}
PASSES = ("forward", "forward and backward")


def peak() -> float:
    """The peak of resident memory in MiB. Linux counts it in KiB, macOS in bytes."""
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 << (20 if sys.platform == "darwin" else 10))


def measure(kind: str, passes: str, length: int, embed_size: int, heads: int) -> float:
    """The growth of this process's peak by one call, in MiB."""
    import layer as layers
    import torch

    layer = getattr(layers, LAYERS[kind])(embed_size, heads)
    x = torch.randn(1, length, embed_size)

    def run(x: torch.Tensor) -> None:
        with torch.set_grad_enabled(passes != "forward"):
            out = layer(x, x, x, None)
        if passes != "forward":
            out.square().mean().backward()

    run(x[:, :16])
    before = peak()
    run(x)
    return peak() - before


def in_own_process(*call: object) -> float:
    """This process never imports PyTorch, because a child's ru_maxrss begins at that of its parent."""
    command = [sys.executable, __file__, "--measure", *map(str, call)]
    return float(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def table(lengths: list[int], embed_size: int, heads: int) -> None:
    columns = [f"{kind}, {passes}" for kind in LAYERS for passes in PASSES]
    print("| L | one matrix of scores |", *(f"{column} |" for column in columns))
    print("|--:|" + "--:|" * (1 + len(columns)))
    for length in lengths:
        figures = [
            in_own_process(kind, passes, length, embed_size, heads) for kind in LAYERS for passes in PASSES
        ]
        scores = heads * length**2 * 4 / 2**20
        print(f"| {length:,} |", *(f"{figure:,.0f} MiB |" for figure in (scores, *figures)), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lengths", type=int, nargs="+", default=[1024, 2048, 4096], metavar="L")
    parser.add_argument("--embed-size", type=int, default=512)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--measure", nargs=5, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure:
        kind, passes, *sizes = given.measure
        print(measure(kind, passes, *map(int, sizes)))
    else:
        table(given.lengths, given.embed_size, given.heads)


if __name__ == "__main__":
    main()
