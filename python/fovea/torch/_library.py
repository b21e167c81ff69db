"""The library of PyTorch's tensors: `fovea.attention`, plans and `fovea.rotate` call this package through it."""

from __future__ import annotations

from typing import Any, Optional, Sequence

import torch
from torch import Tensor

from .. import _recurrence_engine
from .._engine import gradients
from . import _op, _plain_calls, _recurrence, _rope, _scans
from ._tensors import Tensors


class Torch(Tensors):
    def seed_number(self, seed: Any) -> Any:
        """Returned unchecked: PyTorch's generator may draw the seed later, and the value of a tensor in a graph is
        not known."""
        return 0 if seed is None or isinstance(seed, Tensor) else seed

    def attend_plainly(self, query: Any, key: Any, value: Any, causal: bool) -> Any:
        if torch.compiler.is_compiling():
            return None
        return _plain_calls.attend(_plain_calls.plain(causal, None, None, True), query, key, value)

    def attend(self, call: Any, query: Any, key: Any, value: Any, request: Any, seed: Any, out: Any) -> Any:
        return _op.attention(call, query, key, value, request, seed, out)

    def gradients(
        self, call: Any, query: Any, key: Any, value: Any, request: Any, losses: dict[str, Any]
    ) -> dict[str, Any]:
        return gradients(call, query, key, value, request, losses)

    def recur(
        self, structure: Any, arrays: dict[str, Any], tokens: Any, wants_state: bool, out: Any, final_state: Any
    ) -> tuple[Any, Any]:
        return _recurrence.recurrence(structure, arrays, tokens, wants_state, out, final_state)

    def recurrence_gradients(
        self, structure: Any, arrays: dict[str, Any], tokens: Any, losses: dict[str, Any]
    ) -> dict[str, Any]:
        return _recurrence_engine.gradients(structure, arrays, tokens, losses)

    def scan(
        self, kind: Any, option: str, arrays: dict[str, Any], tokens: Any, wants_state: bool
    ) -> tuple[Any, Any]:
        return _scans.scan(kind, option, arrays, tokens, wants_state)

    def seed_of_plan(self, call: Any, query: Any, key: Any, value: Any, seed: Any) -> Any:
        return _op.checked_for_plan(call, query, key, value, seed)

    def rotate(self, x: Any, rope: str, table_positions: int, first: int, positions: Optional[Sequence[int]]) -> Any:
        return _rope.rotate(x, rope, table_positions, first, positions)

    def rotate_by_tables(self, x: Any, cos: Any, sin: Any, interleaved: bool, positions: Any) -> Any:
        return _rope.rotate_by_tables(x, cos, sin, interleaved, positions)


LIBRARY = Torch()
