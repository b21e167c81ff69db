"""`python -m fovea.bench`: prints what `fovea.bench` measures."""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from typing import Optional, Sequence

from . import Row, attention_rows, gpt_rows


def main(arguments: Optional[Sequence[str]] = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m fovea.bench",
        description="Fovea beside PyTorch on this machine, interleaved: medians, as ratios to PyTorch's time.",
    )
    parser.add_argument("--seconds", type=float, default=2.0, help="for each row of attention (default 2)")
    parser.add_argument("--steps", type=int, default=300, help="of the GPT's training; 0: none (default 300)")
    parser.add_argument("--threads", type=int, default=0, help="of both; 0: as they come")
    parser.add_argument("--json", action="store_true", help="one object a line, seconds and ratios")
    chosen = parser.parse_args(arguments)
    try:
        import torch
    except ImportError:
        print("python -m fovea.bench: needs PyTorch: pip install torch", file=sys.stderr)
        return 2
    import fovea

    if chosen.threads > 0:
        torch.set_num_threads(chosen.threads)
        fovea.set_num_threads(chosen.threads)
    if not chosen.json:
        print(f"fovea {fovea.get_num_threads()} threads, PyTorch {torch.__version__} {torch.get_num_threads()} threads")
        print("times PyTorch's time (below 1: faster)")
    rows = attention_rows(chosen.seconds) if chosen.seconds > 0 else iter(())
    for row in itertools.chain(rows, gpt_rows(chosen.steps) if chosen.steps > 0 else ()):
        print(_json(row) if chosen.json else _line(row), flush=True)
    return 0


def _json(row: Row) -> str:
    ratios = {way: row.ratio(way) for way in row.seconds if way != "torch"}
    return json.dumps({"case": row.case, "seconds": row.seconds, "ratio": ratios, **row.notes})


def _line(row: Row) -> str:
    ratios = "  ".join(f"{way} {row.ratio(way):5.2f}" for way in row.seconds if way != "torch")
    notes = "".join(f"\n    {name}: {value:.6g}" for name, value in row.notes.items())
    return f"{row.case:72} {ratios}  (PyTorch {row.seconds['torch'] * 1e3:.3f} ms){notes}"


if __name__ == "__main__":
    sys.exit(main())
