"""Ctrl-C in a call on tensors: forward, within autograd's backward, and as an operator."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

sys.path.insert(0, str(Path(__file__).parents[1]))
from test_interrupt import NO_FORWARD, pytestmark, run  # noqa: E402, F401

TENSORS = """
import torch
import fovea.torch._op, fovea.torch._operator
make = lambda shape: torch.zeros(shape, dtype=torch.float64)
q, k, v, d = (torch.ones(1, 1, *x.shape[2:], dtype=torch.float64).expand(*x.shape) for x in (q, k, v, d))
"""


def test_forward() -> None:
    assert run(TENSORS + "interrupted(lambda: fovea.attention(q, k, v), 'forward')\n") == "interrupted\n"


@pytest.mark.parametrize("module", ["_op", "_operator"])
def test_backward(module: str) -> None:
    said = run(
        TENSORS
        + NO_FORWARD
        + f"fovea.torch.{module}.forward = no_forward\n"
        + "q.requires_grad_(); k.requires_grad_()\n"
        + ("call = fovea.attention\n" if module == "_op" else "call = torch.compile(fovea.attention, backend='aot_eager')\n")
        + "out = call(q, k, v)\n"
        + "interrupted(lambda: out.backward(d), 'backward')\n"
        + "assert q.grad is None\n"
    )
    assert said == "interrupted\n"
