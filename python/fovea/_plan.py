"""Plans for many calls."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any, Optional, Sequence

from . import _core
from ._arrays import library_of
from ._engine import check_unasked, forward, make_request, operands, results, seen
from ._errors import InvalidArgument, named
from ._mask import any_part
from ._positions import positions
from ._spec import SPEC, Call, PlanKey, Shape, by_sizes, make_plan, plan_for, take_apart
from ._value import integer, integers, shown
from .masks import KeyLengths

__all__ = ["Plan", "plan"]


class Plan:
    """A spec and the largest sizes of its calls, checked once, with a kernel chosen for them. It is immutable, and
    any number of threads may call it. The arrays of the spec are read at each call, so an optimiser's updates are
    seen.

    A plan can be pickled. Unpickling plans again, with the best kernel of that machine unless one is forced. A mask
    that is a function has to be picklable itself.

    >>> import pickle
    >>> step = pickle.loads(pickle.dumps(fovea.plan(query_len=1, key_len=64, head_dim=8, mask=fovea.Causal())))
    """

    def __init__(self, call: Call, key: PlanKey, plan: Optional["_core.Plan"] = None):
        mask = call.structure.mask if call.array_mask is None else call.array_mask
        self._call, self._key = call, key
        self._plan = make_plan(key, mask) if plan is None else plan
        self._has_lengths = any_part(mask, KeyLengths)

    def __reduce__(self) -> Any:
        return type(self), (self._call, self._key)

    def __copy__(self) -> "Plan":
        return self  # a plan is immutable

    def __deepcopy__(self, memo: dict[int, Any]) -> "Plan":
        return type(self)(*copy.deepcopy((self._call, self._key), memo), self._plan)

    @property
    def kernel(self) -> str:
        """The kernel that runs calls with as many queries as the plan allows: "avx512 tiled", "reference", ..."""
        return self._plan.kernel

    @property
    def dtype(self) -> str:
        """ "f32", "f64", "bf16" or "f16"."""
        return self._key.dtype

    @named("Plan.explain")
    def explain(self, query_offset: Any = None) -> str:
        """See `explain`."""
        return self._plan.explain(positions(query_offset).offsets()).rstrip("\n")

    def __repr__(self) -> str:
        return f"<fovea.Plan {self.kernel}, {self.dtype}>"

    def __call__(
        self,
        query: Any,
        key: Any,
        value: Any,
        *,
        key_lengths: Optional[Sequence[int]] = None,
        query_offset: Any = None,
        query_starts: Any = None,
        key_starts: Any = None,
        seed: Optional[int] = None,
        return_lse: bool = False,
        return_weights: bool = False,
        weight_heads: Optional[Sequence[int]] = None,
        weight_rows: Optional[Sequence[int]] = None,
        out: Any = None,
    ) -> Any:
        """`attention` with this plan; arguments and results are those of `attention`. Heads and dims must be the
        plan's, other sizes at most the plan's. A plan has no gradients and refuses tensors that require them: use
        `attention`, which caches its plans by itself.

        Args:
            key_lengths: [batch], if the mask has `KeyLengths()`.
        """
        query, key, value = seen(query), seen(key), seen(value)
        call = self._call
        library = library_of(query)
        seed = library.seed_of_plan(call, query, key, value, seed)
        request = make_request(
            query_offset, seed, weight_heads, weight_rows, return_lse, return_weights, query_starts, key_starts
        )
        check_unasked(request, value, out)
        if key_lengths is not None:
            if not self._has_lengths:
                raise InvalidArgument(
                    "attention", "key_lengths", "None: the plan's mask has no KeyLengths()", shown(key_lengths)
                )
            call = dataclasses.replace(call, key_lengths=integers(key_lengths, "attention.key_lengths"))
        inputs = operands(call, query, key, value, self.dtype)
        shape = Shape.of(query, key, value, call)
        request.at.known().check(shape.batch, shape.query_len, shape.keys_given)
        plan = self._plan
        if by_sizes(call):  # such masks are made for the sizes of one call
            told = dataclasses.replace(call, library=library)
            plan = plan_for(told, shape, self.dtype, request.at, kernel=self._key.kernel)
        return results(forward(plan, call, inputs, shape, self.dtype, request, out), query, request)


@named("plan")
def plan(
    *,
    batch: int = 1,
    num_query_heads: int = 1,
    num_kv_heads: Optional[int] = None,
    query_len: int,
    key_len: Optional[int] = None,
    head_dim: int,
    value_dim: Optional[int] = None,
    key_dim: Optional[int] = None,
    dtype: str = "f32",
    kernel: str = "",
    query_offset: Any = None,
    **spec: Any,
) -> Plan:
    """A plan for repeated calls of at most these sizes, so that a decoding loop plans once.

    Args:
        num_kv_heads: None: num_query_heads.
        key_len: None: query_len.
        value_dim: None: head_dim; 0: no values, weights alone.
        key_dim: None: head_dim. It may differ only if the score has matrices.
        dtype: of query, key, value and output: "f32", "f64", "bf16" or "f16".
        kernel: forces a kernel by its name in `list_kernels`: "reference", "avx2", "avx512 tiled", ...; "": the best.
        query_offset: the offset for which the mask is checked now. A mask made of functions or arrays is made for the
            sizes of one call. For other sizes functions are called again, and arrays must broadcast to them.
        spec: score, mods, mask, normalizer, scale, dropout, precision, weight_mods, as `attention` takes them.

    Raises:
        InvalidArgument: for impossible sizes, specs and kernels, with the reason.

    >>> import numpy as np
    >>> step = fovea.plan(query_len=1, key_len=64, head_dim=8, mask=fovea.Causal())
    >>> keys = np.ones((1, 1, 64, 8), np.float32)
    >>> step(keys[:, :, :1], keys[:, :, :9], keys[:, :, :9]).shape
    (1, 1, 1, 8)
    """

    def size(x: Any, name: str, default: int) -> int:
        n = default if x is None else int(integer(x, f"plan.{name}"))
        if not 0 <= n <= 1 << 30:  # a mask may ask for arrays of sizes before the engine looks at them
            raise InvalidArgument("plan", name, "a size in [0, 2^30]", str(n))
        return n

    head_dim = size(-1 if head_dim is None else head_dim, "head_dim", 0)
    for name, text in (("dtype", dtype), ("kernel", kernel)):
        if not isinstance(text, str):
            raise InvalidArgument("plan", name, "a string", shown(text))
    unknown = set(spec) - SPEC
    if unknown:
        raise TypeError(f"plan() got an unexpected keyword argument {sorted(unknown)[0]!r}")
    call = take_apart(_Width(head_dim), **spec)
    heads = size(num_query_heads, "num_query_heads", 1)
    length = size(query_len, "query_len", 0)
    shape = Shape(
        batch=size(batch, "batch", 1),
        num_query_heads=heads,
        num_kv_heads=size(num_kv_heads, "num_kv_heads", heads),
        query_len=length,
        key_len=size(key_len, "key_len", length),
        head_dim=head_dim,
        value_dim=size(value_dim, "value_dim", head_dim),
        key_dim=size(key_dim, "key_dim", head_dim),
        hidden=call.structure.hidden,
    )
    offset = positions(query_offset).known().offset
    key = PlanKey(call.structure, shape, dtype, shape.key_len - length if offset is None else offset, kernel=kernel)
    return Plan(call, key)


@dataclasses.dataclass(frozen=True)
class _Width:
    """A placeholder for a query of which only the dtype is known."""

    head_dim: int

    @property
    def shape(self) -> tuple[int]:
        return (self.head_dim,)
