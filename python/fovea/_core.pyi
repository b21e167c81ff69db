"""The engine: thin bindings, no arithmetic. The package fovea is what people use."""

from collections.abc import Mapping, Sequence
from typing import Any, Optional, final

@final
class Mask:
    """A mask of the engine, from its text."""

    def __init__(self, text: str, /) -> None: ...
    def __and__(self, other: Mask, /) -> Mask: ...
    def __or__(self, other: Mask, /) -> Mask: ...
    def __invert__(self) -> Mask: ...

@final
class PredicateRows:
    """The rows of a mask that an array gives: [batch, heads, queries, keys] of truth values, block after block."""

    def __init__(self) -> None: ...
    def append(self, visible: Any, /) -> None: ...
    def append_nothing(self, queries: int, /) -> None: ...
    def finish(
        self, name: str, batch: int, heads: int, query_begin: int, query_end: int, key_len: int, /
    ) -> Mask: ...

def mask_of_array(visible: Any, query_offset: int, /) -> Mask: ...

@final
class RopeTable:
    """Cosines and sines of positions."""

    def __init__(self, rope: str, positions: int, dtype: str, /) -> None: ...
    @property
    def positions(self) -> int: ...
    def rotate(
        self, input: Any, first: int, list: Optional[Sequence[int]], output: Any, backward: bool
    ) -> None: ...

def rotate_by_tables(
    cos: Any,
    sin: Any,
    interleaved: bool,
    input: Any,
    first: int,
    list: Optional[Sequence[int]],
    output: Any,
    backward: bool,
) -> None: ...

@final
class CallOptions:
    """What a call brings besides arrays."""

    def __init__(
        self,
        query_offset: Optional[int] = None,
        query_offsets: Sequence[int] = ...,
        query_starts: Sequence[int] = ...,
        key_starts: Sequence[int] = ...,
        key_lengths: Sequence[int] = ...,
        weight_heads: Sequence[int] = ...,
        weight_rows: Sequence[int] = ...,
        dropout_seed: int = 0,
        sample_seed: int = 0,
    ) -> None: ...

@final
class Plan:
    """make_plan's result: a spec, a shape, and the kernel that runs."""

    @property
    def kernel(self) -> str: ...
    @property
    def argument_names(self) -> list[str]: ...
    def explain(self, query_offsets: Sequence[int] = ...) -> str: ...
    def attend(
        self,
        function: str,
        inputs: Mapping[str, Any],
        outputs: Mapping[str, Any],
        axes: Mapping[str, str],
        options: CallOptions,
    ) -> None: ...
    def attend_backward(
        self,
        function: str,
        inputs: Mapping[str, Any],
        loss: Mapping[str, Any],
        gradients: Mapping[str, Any],
        axes: Mapping[str, str],
        options: CallOptions,
    ) -> None: ...

def make_plan(
    score: str,
    scale: Optional[float],
    mods: Sequence[str],
    mask: Mask,
    normalizer: str,
    weight_mods: Sequence[str],
    dropout: float,
    sizes: Sequence[int],
    dtype: str,
    precision: str,
    kernel: str,
    derivatives: bool,
    parts: bool,
) -> Plan: ...
def merge(parts: list[list[Any]], output: Any, log_sum_exp: Optional[Any]) -> None: ...
def list_kernels() -> list[tuple[str, str, bool]]: ...
def set_num_threads(threads: int, /) -> None: ...
def get_num_threads() -> int: ...
def alibi_slopes(num_heads: int, /) -> list[float]: ...
