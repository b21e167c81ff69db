"""Calls: attention, its gradients, and plans for many of them."""

from __future__ import annotations

import copy
import dataclasses
import functools
import random
from typing import Any, Callable, Iterable, Optional, Sequence, TypeVar

from . import _core, scores
from ._arrays import compute_dtype, described, dtype_name, is_torch, library_of
from ._errors import InvalidArgument
from ._spec import Call, PlanKey, Shape, any_part, by_sizes, make_plan, offset_of, plan_for, take_apart
from ._value import integer, integers, is_array, shown
from .masks import KeyLengths

__all__ = ["attention", "gradients", "explain", "plan", "Plan", "set_num_threads", "get_num_threads"]


@dataclasses.dataclass(frozen=True)
class Asked:
    """What a call is asked for besides its output, and what it brings besides arrays."""

    query_offset: Optional[int] = None
    seed: int = 0
    weight_heads: tuple[int, ...] = ()
    weight_rows: tuple[int, ...] = ()
    lse: bool = False
    weights: bool = False
    # The output row by row in memory, however the query lies there. Otherwise a tensor's output follows its query.
    row_major: bool = False

    def options(self, key_lengths: Any) -> "_core.CallOptions":
        return _core.CallOptions(
            self.query_offset,
            list(integers(key_lengths, "KeyLengths.lengths")),
            list(self.weight_heads),
            list(self.weight_rows),
            self.seed,
            self.seed,
        )

    def weights_shape(self, shape: Shape) -> tuple[int, int, int, int]:
        return (
            shape.batch,
            len(self.weight_heads) or shape.num_query_heads,
            len(self.weight_rows) or shape.query_len,
            shape.key_len,
        )


# The arguments that a spec is made of.
_SPEC = frozenset({"score", "mods", "mask", "normalizer", "scale", "dropout", "precision", "weight_mods"})

# Not the stream of `random` that a program may have seeded for itself.
_SEEDS = random.SystemRandom()


def asked(
    query_offset: Any = None,
    seed: Any = None,
    weight_heads: Any = None,
    weight_rows: Any = None,
    lse: bool = False,
    weights: bool = False,
) -> Asked:
    if seed is None:
        seed = _SEEDS.getrandbits(63)
    number = seed if isinstance(seed, int) and not isinstance(seed, bool) else int(integer(seed, "attention.seed", bits=64))
    if not 0 <= number < 1 << 64:
        raise InvalidArgument("attention", "seed", "a number in [0, 2^64)", shown(number))
    return Asked(
        offset_of(query_offset),
        number,
        _some(weight_heads, "weight_heads"),
        _some(weight_rows, "weight_rows"),
        _truth(lse, "return_lse"),
        _truth(weights, "return_weights"),
    )


def _truth(x: Any, argument: str) -> bool:
    try:
        return bool(x)
    except Exception:  # an array of several elements has none
        raise InvalidArgument("attention", argument, "True or False", shown(x)) from None


def _some(chosen: Any, argument: str) -> tuple[int, ...]:
    if chosen is None:
        return ()
    found = integers(chosen, f"attention.{argument}")
    if not found or not all(0 <= n < 1 << 40 for n in found):
        raise InvalidArgument(
            "attention", argument, "numbers of at least 0, one or more; None for all", str(list(found))[:80]
        )
    return found


def seen(x: Any) -> Any:
    """What offers `__dlpack__` and nothing else, as an array of NumPy's on the same memory."""
    if x is None:
        return x
    try:
        if is_array(x) or not hasattr(x, "__dlpack__"):
            return x
        import numpy as np

        return np.from_dlpack(x)
    except Exception:  # not in this machine's memory, of a dtype that NumPy lacks, or no array: refused by name
        return x


def operands(call: Call, query: Any, key: Any, value: Any, dtype: str) -> dict[str, Any]:
    """By the engine's names, in layouts and dtypes that it takes."""
    library = library_of(query)
    found = {"query": query, "key": key, "value": value}
    if not is_torch(query):
        for name, x in found.items():
            if is_torch(x):  # whose gradients would be lost, and nobody would know
                expected = "an array of the query's library (torch.from_numpy makes the query a tensor)"
                raise InvalidArgument("attention", name, expected, f"a tensor of PyTorch, {described(x)}")
    result = {name: library.operand(x) for name, x in found.items() if x is not None}
    for name, x in call.parameters.items():
        result[name] = library.operand(library.parameter(x, compute_dtype(dtype), name))
    return result


def forward(
    plan: "_core.Plan",
    call: Call,
    inputs: dict[str, Any],
    shape: Shape,
    dtype: str,
    ask: Asked,
    out: Any = None,
) -> dict[str, Any]:
    """ "output", "log_sum_exp" and "weights", those that are asked for."""
    library, query = library_of(inputs["query"]), inputs["query"]
    outputs: dict[str, Any] = {}
    sizes = (shape.batch, shape.num_query_heads, shape.query_len, shape.value_dim)
    if shape.value_dim:
        outputs["output"] = library.output(sizes, dtype, query, ask.row_major) if out is None else out
    if ask.lse:
        outputs["log_sum_exp"] = library.empty(sizes[:3], compute_dtype(dtype), query)
    if ask.weights or not shape.value_dim:
        outputs["weights"] = library.empty(ask.weights_shape(shape), compute_dtype(dtype), query)
    given, axes = library.handed(inputs), dict(call.structure.axes)
    plan.attend("attention", given, library.handed(outputs), axes, ask.options(call.key_lengths))
    return outputs


def backward(
    plan: "_core.Plan",
    call: Call,
    inputs: dict[str, Any],
    loss: dict[str, Any],
    wanted: Sequence[str],
    ask: Asked,
) -> dict[str, Any]:
    """Derivatives by the inputs named in `wanted`."""
    library, query = library_of(inputs["query"]), inputs["query"]
    dtype = dtype_name(query, "query")
    results = {}
    for name in wanted:
        if name in ("query", "key", "value"):
            results[name] = library.like(inputs[name])
        else:
            results[name] = library.empty(tuple(inputs[name].shape), compute_dtype(dtype), query)
    given, of, wanted_of = library.handed(inputs), library.handed(loss), library.handed(results)
    axes = dict(call.structure.axes)
    plan.attend_backward("gradients", given, of, wanted_of, axes, ask.options(call.key_lengths))
    return results


def _choice_is_asked(ask: Asked, asks: bool, what: str) -> None:
    """Heads and rows chosen of weights that nobody asks for are a mistake."""
    for name, chosen in (("weight_heads", ask.weight_heads), ("weight_rows", ask.weight_rows)):
        if chosen and not asks:
            raise InvalidArgument("attention", name, f"None without {what}", shown(list(chosen)))


def _no_output(value: Any, out: Any) -> None:
    if value is None and out is not None:
        raise InvalidArgument("attention", "out", "None: without values there is no output", described(out))


def _results(outputs: dict[str, Any], like: Any, ask: Asked) -> Any:
    names = [
        *(["output"] if "output" in outputs else []),
        *(["log_sum_exp"] if ask.lse else []),
        *(["weights"] if "weights" in outputs else []),
    ]
    library = library_of(like)
    found = tuple(library.result(outputs[name], like) for name in names)
    return found[0] if len(found) == 1 else found


def attention(
    query: Any,
    key: Any,
    value: Any,
    *,
    score: Any = None,
    mods: Sequence[Any] = (),
    mask: Any = None,
    normalizer: Any = None,
    scale: Optional[float] = None,
    dropout: float = 0.0,
    precision: str = "full",
    return_lse: bool = False,
    return_weights: bool = False,
    weight_mods: Sequence[Any] = (),
    weight_heads: Optional[Sequence[int]] = None,
    weight_rows: Optional[Sequence[int]] = None,
    query_offset: Optional[int] = None,
    seed: Optional[int] = None,
    out: Any = None,
) -> Any:
    """score·scale → mods in their order → mask → normaliser → weight mods → dropout → Σ weights·values.

    Args:
        query: [batch, num_query_heads, query_len, head_dim] of f32, f64, bf16 or f16: a NumPy array, a PyTorch
            tensor, or anything with `__dlpack__`. Any strides; an innermost axis that is not contiguous costs
            a copy.
        key: [batch, num_kv_heads, key_len, key_dim]; kv head of query head h is
            h // (num_query_heads // num_kv_heads).
        value: [batch, num_kv_heads, key_len, value_dim], or None: weights alone (pointers).
        score: `Dot()`, `Additive(W, U, v)`, ...; None: `ScaledDot()`.
        mods: `[SoftCap(50), AlibiBias(slopes)]`, in the order given.
        mask: `Causal() & SlidingWindow(127)`; an array of truth values (True: visible) or of numbers to be
            added, that broadcasts to [batch, num_query_heads, query_len, key_len]; or a function
            (batch, head, i, j), see `Predicate`.
        normalizer: `Sparsemax()`, ...; None: `Softmax()`.
        scale: multiplies the score; None: 1/sqrt(head_dim) for ScaledDot, 1 for others.
        dropout: the share of weights dropped, rounded to k/256.
        precision: the least precise products of f32 that will do: "full", "higher" (three bf16 terms of each
            number: as exact), "high" (two) or "medium" (one). A CPU without bf16 tiles (AMX) computes more exactly.
        return_lse: also return the log-sum-exp, [batch, num_query_heads, query_len], natural; -inf for a row
            that sees no key. In its place stands what the normaliser says.
        return_weights: also return the weights, [batch, num_query_heads, query_len, key_len], before dropout.
        weight_mods: mods of the weights: `[LocalGaussian(5, center)]`.
        weight_heads: the query heads whose weights are returned; None: all.
        weight_rows: the rows of queries whose weights are returned; None: all.
        query_offset: position of the first query, counted in keys; None: key_len - query_len.
        seed: of dropout and samples, in [0, 2^64); None: drawn anew (from PyTorch's generator for its tensors).
        out: an array for the output, apart from the inputs.

    Returns:
        The output, [batch, num_query_heads, query_len, value_dim], in the library and dtype of the query; with
        `return_lse` or `return_weights` a tuple of those asked for, in this order. A row that sees no key gives
        0.

    Raises:
        InvalidArgument: naming the argument, what it had to be, and what came.

    PyTorch tensors get gradients: query, key, value and every array of a score, mod, mask or normaliser.
    Other threads run while this one computes.

    >>> import numpy as np
    >>> q = k = v = np.ones((1, 2, 4, 8), np.float32)
    >>> out, lse = fovea.attention(q, k, v, mask=fovea.Causal(), return_lse=True)
    >>> out.shape, lse.shape
    ((1, 2, 4, 8), (1, 2, 4))
    """
    query, key, value = seen(query), seen(key), seen(value)
    call = take_apart(
        query,
        score=score,
        mods=mods,
        mask=mask,
        normalizer=normalizer,
        scale=scale,
        dropout=dropout,
        precision=precision,
        weight_mods=weight_mods,
    )
    if is_torch(query):
        from .torch import _op

        # PyTorch's generator draws the seed, or a tensor is it, and a graph must not look into that.
        number = 0 if seed is None or is_torch(seed) else seed
        ask = asked(query_offset, number, weight_heads, weight_rows, return_lse, return_weights)
        _choice_is_asked(ask, ask.weights or value is None, "return_weights=True")
        return _op.attention(call, query, key, value, ask, seed, out)
    ask = asked(query_offset, seed, weight_heads, weight_rows, return_lse, return_weights)
    _choice_is_asked(ask, ask.weights or value is None, "return_weights=True")
    dtype = dtype_name(query, "query")
    shape = Shape.of(query, key, value, call)
    _no_output(value, out)
    chosen = plan_for(call, shape, dtype, ask.query_offset)
    outputs = forward(chosen, call, operands(call, query, key, value, dtype), shape, dtype, ask, out)
    return _results(outputs, query, ask)


_Function = TypeVar("_Function", bound=Callable[..., Any])


def _named(name: str) -> Callable[[_Function], _Function]:
    """Errors of what a function shares with `attention` name the one that was called."""

    def wrap(function: _Function) -> _Function:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                return function(*args, **kwargs)
            except InvalidArgument as error:
                if error.function != "attention":
                    raise
                raise InvalidArgument(name, error.argument, error.expected, error.got) from None

        return call  # type: ignore[return-value]

    return wrap


@_named("gradients")
def gradients(
    query: Any,
    key: Any,
    value: Any,
    d_output: Any,
    *,
    score: Any = None,
    mods: Sequence[Any] = (),
    mask: Any = None,
    normalizer: Any = None,
    scale: Optional[float] = None,
    dropout: float = 0.0,
    weight_mods: Sequence[Any] = (),
    weight_heads: Optional[Sequence[int]] = None,
    weight_rows: Optional[Sequence[int]] = None,
    query_offset: Optional[int] = None,
    seed: Optional[int] = None,
    d_weights: Any = None,
    advantage: Any = None,
) -> dict[str, Any]:
    """Derivatives of a loss by everything that `attention` was given, for those without PyTorch.

    Args:
        d_output: the loss's derivative by the output, in its shape and dtype; None where it depends on the
            weights alone.
        d_weights: by the returned weights, in their shape, f32 (f64 for f64); None where it does not.
        advantage: of HardSample, [batch, num_query_heads, query_len].
        seed: the one of the call of `attention`, where that drew anything.
        The others: as `attention` took them.

    Returns:
        Arrays by name: "query", "key", "value", and those of parameters, "score.W", "mods[0].slope",
        "normalizer.sink", in the shapes they were given. An array of numbers as mask is the last of the mods,
        "mods[0].bias". HardArgmax leaves "value" and "weight_mods[...]": scores have no derivative.

    >>> import numpy as np
    >>> q = k = v = np.ones((1, 2, 4, 8), np.float32)
    >>> bias = fovea.AlibiBias(np.ones(2, np.float32))
    >>> sorted(fovea.gradients(q, k, v, np.ones_like(v), mods=[bias]))
    ['key', 'mods[0].slope', 'query', 'value']
    """
    query, key, value = seen(query), seen(key), seen(value)
    call = take_apart(
        query,
        score=score,
        mods=mods,
        mask=mask,
        normalizer=normalizer,
        scale=scale,
        dropout=dropout,
        weight_mods=weight_mods,
    )
    ask = asked(query_offset, seed, weight_heads, weight_rows, lse=True)
    dtype = dtype_name(query, "query")
    shape = Shape.of(query, key, value, call)
    chosen = plan_for(call, shape, dtype, ask.query_offset)
    inputs = operands(call, query, key, value, dtype)
    library = library_of(query)
    loss: dict[str, Any] = {}
    if d_output is not None:
        loss["d_output"] = library.operand(d_output)
        loss.update(forward(chosen, call, inputs, shape, dtype, ask))
    for name, array in (("d_weights", d_weights), ("advantage", advantage)):
        if array is not None:
            loss[name] = library.operand(array)
    if not loss:
        raise InvalidArgument("gradients", "d_output", "an array, or d_weights or advantage", "none of them")
    results = backward(chosen, call, inputs, loss, _differentiable(call, inputs), ask)
    if isinstance(score, scores.Concat):
        results["score.W"] = library.joined(results["score.W"], results.pop("score.U"))
    return {name: library.result(x, query) for name, x in results.items()}


def _differentiable(call: Call, names: Iterable[str]) -> list[str]:
    """The inputs that a derivative goes to: none goes through an argmax to the scores."""
    if call.structure.normalizer != "argmax":
        return list(names)
    return [name for name in names if name == "value" or name.startswith("weight_mods")]


@_named("explain")
def explain(query: Any, key: Any, value: Any, **arguments: Any) -> str:
    """What `attention` of these arguments would do: the kernel and why better ones refused, the spec, the shape,
    and the share of tiles that the mask lets skip.

    >>> kernel, rest = fovea.explain(q, k, v, mask=fovea.Causal()).split("\\n", 1)
    >>> print(rest)  # doctest: +ELLIPSIS
    scaled-dot x 0.35355339059327373 -> causal -> softmax
    batch 1, heads 2/2, queries 4, keys 4, head_dim 8, value_dim 8, f32
    ...
    """
    offset = offset_of(arguments.pop("query_offset", None))
    for name in ("return_lse", "return_weights", "weight_heads", "weight_rows", "seed", "out"):
        arguments.pop(name, None)  # no plan depends on them
    unknown = set(arguments) - _SPEC
    if unknown:
        raise TypeError(f"explain() got an unexpected keyword argument {sorted(unknown)[0]!r}")
    query, key, value = seen(query), seen(key), seen(value)
    call = take_apart(query, **arguments)
    shape = Shape.of(query, key, value, call)
    return plan_for(call, shape, dtype_name(query, "query"), offset).explain(offset).rstrip("\n")


class Plan:
    """A spec and the largest sizes of its calls, checked once, its kernel chosen. Immutable; any number of
    threads may call it. Arrays of the spec are read at each call, so that it sees what an optimiser did.

    Plans pickle, and are planned again where they are read, by the best kernel there unless one is forced. A mask
    that is a function has to pickle itself.

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
        return self  # it does not change

    def __deepcopy__(self, memo: dict[int, Any]) -> "Plan":
        return type(self)(*copy.deepcopy((self._call, self._key), memo), self._plan)

    @property
    def kernel(self) -> str:
        """The kernel that runs: "avx512 flash", "reference", ..."""
        return self._plan.kernel

    @property
    def dtype(self) -> str:
        """ "f32", "f64", "bf16" or "f16"."""
        return self._key.dtype

    def explain(self, query_offset: Optional[int] = None) -> str:
        """See `explain`."""
        return self._plan.explain(offset_of(query_offset)).rstrip("\n")

    def __repr__(self) -> str:
        return f"<fovea.Plan {self.kernel}, {self.dtype}>"

    def __call__(
        self,
        query: Any,
        key: Any,
        value: Any,
        *,
        key_lengths: Optional[Sequence[int]] = None,
        query_offset: Optional[int] = None,
        seed: Optional[int] = None,
        return_lse: bool = False,
        return_weights: bool = False,
        weight_heads: Optional[Sequence[int]] = None,
        weight_rows: Optional[Sequence[int]] = None,
        out: Any = None,
    ) -> Any:
        """`attention` by this plan: arguments and results are those of `attention`. Sizes are at most the
        plan's, heads and dims exactly. Without gradients: tensors that want some are refused, and go through
        `attention`, which finds its plans again by itself.

        Args:
            key_lengths: [batch], where the mask has `KeyLengths()`.
        """
        query, key, value = seen(query), seen(key), seen(value)
        call = self._call
        if is_torch(query):
            from .torch import _op

            seed = _op.checked_for_plan(call, query, key, value, seed)
        ask = asked(query_offset, seed, weight_heads, weight_rows, return_lse, return_weights)
        _choice_is_asked(ask, ask.weights or value is None, "return_weights=True")
        _no_output(value, out)
        if key_lengths is not None:
            if not self._has_lengths:
                raise InvalidArgument(
                    "attention", "key_lengths", "None: the plan's mask has no KeyLengths()", shown(key_lengths)
                )
            call = dataclasses.replace(call, key_lengths=integers(key_lengths, "attention.key_lengths"))
        inputs = operands(call, query, key, value, self.dtype)
        shape = Shape.of(query, key, value, call)
        plan = self._plan
        if by_sizes(call):  # whose masks know the sizes of one call
            told = dataclasses.replace(call, tensors=is_torch(query))
            plan = plan_for(told, shape, self.dtype, ask.query_offset, kernel=self._key.kernel)
        return _results(forward(plan, call, inputs, shape, self.dtype, ask, out), query, ask)


@_named("plan")
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
    query_offset: Optional[int] = None,
    **spec: Any,
) -> Plan:
    """A plan for repeated calls, of at most these sizes: a decoding loop never replans.

    Args:
        num_kv_heads: None: num_query_heads.
        key_len: None: query_len.
        value_dim: None: head_dim; 0: no values, weights alone.
        key_dim: None: head_dim. Differs only where the score has matrices.
        dtype: of query, key, value and output: "f32", "f64", "bf16" or "f16".
        kernel: forces one, as `list_kernels` names them: "reference", "avx2", "avx512", ...; "": the best.
        query_offset: of the mask that is checked now. Masks that functions or arrays make know the sizes of one call:
            functions are asked again for others, arrays must broadcast to them.
        spec: score, mods, mask, normalizer, scale, dropout, precision, weight_mods, as `attention` takes them.

    Raises:
        InvalidArgument: for sizes, specs and kernels that cannot be, with the reason.

    >>> import numpy as np
    >>> step = fovea.plan(query_len=1, key_len=64, head_dim=8, mask=fovea.Causal())
    >>> keys = np.ones((1, 1, 64, 8), np.float32)
    >>> step(keys[:, :, :1], keys[:, :, :9], keys[:, :, :9]).shape
    (1, 1, 1, 8)
    """
    def size(x: Any, name: str, default: int) -> int:
        n = default if x is None else int(integer(x, f"plan.{name}"))
        if not 0 <= n <= 1 << 40:  # a mask may ask for arrays of sizes before the engine looks at them
            raise InvalidArgument("plan", name, "a size in [0, 2^40]", str(n))
        return n

    head_dim = size(-1 if head_dim is None else head_dim, "head_dim", 0)
    for name, text in (("dtype", dtype), ("kernel", kernel)):
        if not isinstance(text, str):
            raise InvalidArgument("plan", name, "a string", shown(text))
    unknown = set(spec) - _SPEC
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
    offset = shape.key_len - length if query_offset is None else offset_of(query_offset)
    key = PlanKey(call.structure, shape, dtype, offset or 0, kernel=kernel)
    return Plan(call, key)


@dataclasses.dataclass(frozen=True)
class _Width:
    """Stands for a query whose elements alone are known."""

    head_dim: int

    @property
    def shape(self) -> tuple[int]:
        return (self.head_dim,)


_MOST_THREADS = 4096


def set_num_threads(threads: int) -> None:
    """How many threads share each call from now on, on all threads of Python: the caller's own and others. Results
    are the same bits for every number.

    Args:
        threads: at least 1.

    >>> fovea.set_num_threads(2)
    >>> fovea.get_num_threads()
    2
    """
    n = int(integer(threads, "set_num_threads.threads"))
    if not 1 <= n <= _MOST_THREADS:
        raise InvalidArgument("set_num_threads", "threads", f"a number in [1, {_MOST_THREADS}]", str(n))
    _core.set_num_threads(n)


def get_num_threads() -> int:
    """How many threads share a call: as many as the machine has for this process, or what `set_num_threads` said.

    >>> fovea.get_num_threads() >= 1
    True
    """
    return _core.get_num_threads()
