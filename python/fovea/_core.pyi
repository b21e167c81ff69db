"""The engine: thin bindings, no arithmetic. The package fovea is what people use."""

from collections.abc import Callable, Mapping, Sequence as Many
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
        self, input: Any, first: int, list: Optional[Many[int]], output: Any, backward: bool
    ) -> None: ...

def rotate_by_tables(
    cos: Any,
    sin: Any,
    interleaved: bool,
    input: Any,
    first: int,
    list: Optional[Many[int]],
    output: Any,
    backward: bool,
) -> None: ...

@final
class CallOptions:
    """What a call brings besides arrays."""

    def __init__(
        self,
        query_offset: Optional[int] = None,
        query_offsets: Many[int] = ...,
        query_starts: Many[int] = ...,
        key_starts: Many[int] = ...,
        key_lengths: Many[int] = ...,
        weight_heads: Many[int] = ...,
        weight_rows: Many[int] = ...,
        dropout_seed: int = 0,
        sample_seed: int = 0,
    ) -> None: ...

Bytes = bytes  # KvCache has a function of that name

@final
class Sequence:
    """A sequence of a cache; empty once it is released."""

    def __bool__(self) -> bool: ...

@final
class KeyValueView:
    """The rows of one sequence in one layer, where they lie."""

    @property
    def length(self) -> int: ...

@final
class KvCache:
    """Keys and values of sequences."""

    def __init__(self, layers: list[tuple[Any, ...]], limit_bytes: int, prefix_bytes: int, /) -> None: ...
    def start(self, ids: list[int], salt: int, /) -> Sequence: ...
    def fork(self, sequence: Sequence, /) -> Sequence: ...
    def release(self, sequence: Sequence, /) -> None: ...
    def length(self, sequence: Sequence, /) -> int: ...
    def pending(self, layer: int, sequence: Sequence, /) -> int: ...
    def ids(self, sequence: Sequence, /) -> list[int]: ...
    def reserve(self, sequence: Sequence, rows: int, /) -> None: ...
    def append(self, layer: int, sequences: list[Sequence], key: Any, value: Any) -> None: ...
    def replace(self, layer: int, sequences: list[Sequence], rows: Any) -> None: ...
    def last_rows(self, layer: int, sequences: list[Sequence], target: Any, /) -> None: ...
    def view(self, layer: int, sequence: Sequence, /) -> KeyValueView: ...
    def commit(self, sequence: Sequence, ids: list[int], /) -> None: ...
    def rollback(self, sequence: Sequence, /) -> None: ...
    def truncate(self, sequence: Sequence, length: int, /) -> None: ...
    def checkpoint(self, sequence: Sequence, /) -> None: ...
    def drop(self, sequence: Sequence, ranges: list[tuple[int, int]], /) -> None: ...
    def keep(self, sequence: Sequence, path: list[int], /) -> None: ...
    def permute(self, sequences: list[Sequence], indices: list[int], /) -> None: ...
    def find_prefix(self, ids: list[int], salt: int, /) -> int: ...
    def bytes(self) -> tuple[int, int, int, int]: ...
    def bytes_of(self, sequence: Sequence, /) -> tuple[int, int]: ...
    def bytes_per_row(self) -> int: ...
    def save(self, sequence: Sequence, path: Bytes, note: str, /) -> None: ...
    def load(self, path: Bytes, note: str, salt: int, mapped: bool, /) -> Sequence: ...

def gather(views: list[KeyValueView], begin: int, key: Any, value: Any) -> None: ...

@final
class Plan:
    """make_plan's result: a spec, a shape, and the kernel that runs."""

    @property
    def kernel(self) -> str: ...
    @property
    def argument_names(self) -> list[str]: ...
    def explain(self, query_offsets: Many[int] = ...) -> str: ...
    def attend(
        self,
        function: str,
        inputs: Mapping[str, Any],
        outputs: Mapping[str, Any],
        options: CallOptions,
        cache: Many[KeyValueView] = ...,
    ) -> None: ...
    def attend_backward(
        self,
        function: str,
        inputs: Mapping[str, Any],
        loss: Mapping[str, Any],
        gradients: Mapping[str, Any],
        options: CallOptions,
    ) -> None: ...

@final
class PlainCalls:
    """Calls of one spec that bring query, key and value alone. None: not served here."""

    def __init__(
        self, plan_for: Callable[[tuple[int, ...], str], Plan], empty_like: Callable[[Any], Any], grouped: bool
    ) -> None: ...
    def attend(self, query: Any, key: Any, value: Any, query_offset: Optional[int]) -> Any: ...
    def attend_recorded(
        self, query: Any, key: Any, value: Any, query_offset: Optional[int]
    ) -> Optional[tuple[Any, Any]]: ...
    def gradients(
        self,
        query: Any,
        key: Any,
        value: Any,
        output: Any,
        log_sum_exp: Any,
        d_output: Any,
        query_offset: Optional[int],
    ) -> Optional[tuple[Any, Any, Any]]: ...

def make_plan(
    score: str,
    scale: Optional[float],
    mods: Many[str],
    mask: Mask,
    normalizer: str,
    weight_mods: Many[str],
    dropout: float,
    sizes: Many[int],
    dtype: str,
    precision: str,
    kernel: str,
    derivatives: bool,
    parts: bool,
) -> Plan: ...
@final
class RecurrencePlan:
    """make_recurrence_plan's result: a spec, a shape, and the kernel that runs."""

    @property
    def kernel(self) -> str: ...
    @property
    def chunk(self) -> int: ...
    def explain(self) -> str: ...
    def saved_states_size(
        self, function: str, inputs: Mapping[str, Any], starts: Many[int], present: Optional[Any]
    ) -> int: ...
    def recur(
        self,
        function: str,
        inputs: Mapping[str, Any],
        outputs: Mapping[str, Any],
        starts: Many[int],
        present: Optional[Any],
    ) -> None: ...
    def recur_backward(
        self,
        function: str,
        inputs: Mapping[str, Any],
        loss: Mapping[str, Any],
        gradients: Mapping[str, Any],
        starts: Many[int],
        present: Optional[Any],
    ) -> None: ...

def make_recurrence_plan(
    parts: Many[str], epsilon: float, scale: Optional[float], sizes: Many[int], dtype: str, kernel: str
) -> RecurrencePlan: ...

@final
class SelectiveScanPlan:
    """make_selective_scan_plan's result."""
    @property
    def kernel(self) -> str: ...
    def explain(self) -> str: ...
    def run(
        self,
        function: str,
        inputs: Mapping[str, Any],
        outputs: Mapping[str, Any],
        starts: Many[int],
        present: Optional[Any],
    ) -> None: ...
    def run_backward(
        self,
        function: str,
        inputs: Mapping[str, Any],
        loss: Mapping[str, Any],
        gradients: Mapping[str, Any],
        starts: Many[int],
        present: Optional[Any],
    ) -> None: ...

@final
class CausalConvPlan:
    """make_causal_conv_plan's result."""
    @property
    def kernel(self) -> str: ...
    def explain(self) -> str: ...
    def run(
        self,
        function: str,
        inputs: Mapping[str, Any],
        outputs: Mapping[str, Any],
        starts: Many[int],
        present: Optional[Any],
    ) -> None: ...
    def run_backward(
        self,
        function: str,
        inputs: Mapping[str, Any],
        loss: Mapping[str, Any],
        gradients: Mapping[str, Any],
        starts: Many[int],
        present: Optional[Any],
    ) -> None: ...

def make_selective_scan_plan(step_size: str, sizes: Many[int], dtype: str) -> SelectiveScanPlan: ...
def make_causal_conv_plan(activation: str, sizes: Many[int], dtype: str) -> CausalConvPlan: ...
def list_recurrence_kernels() -> list[str]: ...
def merge(parts: list[list[Any]], output: Any, log_sum_exp: Optional[Any]) -> None: ...
def properties() -> dict[str, list[str]]: ...
def sizes_of_scores() -> dict[str, dict[str, str]]: ...
def mod_needs_whole_rows(text: str, /) -> bool: ...
def list_kernels() -> list[tuple[str, str, bool]]: ...
def set_num_threads(threads: int, /) -> None: ...
def kept_elements(count: int, dtype: str) -> Any: ...
def release_memory() -> None: ...
def join_threads_of_torch() -> bool: ...
def get_num_threads() -> int: ...
def alibi_slopes(num_heads: int, /) -> list[float]: ...
