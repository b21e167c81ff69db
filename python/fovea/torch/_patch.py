"""Fovea's attention under models that call PyTorch's."""

from __future__ import annotations

import types
import warnings
from contextlib import AbstractContextManager
from typing import Any, Callable, Literal, Optional, Union, overload

import torch
from torch.overrides import TorchFunctionMode

from .._errors import InvalidArgument
from .._value import shown
from . import _operator, _recompute, _report, _sdpa, _transformers_recurrences
from ._cached_rows import HeldRows, in_cache, plain
from ._kinds import PLAIN, CausalBias, has_tangent, is_transformed
from ._tensors import TENSORS

# The builtin function. Every import of it, in any module, is this object.
_THEIRS = torch.nn.functional.scaled_dot_product_attention


def _instead(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: Optional[float] = None,
    enable_gqa: bool = False,
) -> Any:
    """Calls Fovea's attention if Fovea serves the call, else PyTorch's: for other devices, and so that PyTorch raises
    its own errors."""
    held = in_cache(key, value)
    one_mask = attn_mask is None or not is_causal
    if held is not None and one_mask and _takes_cache(query, held, attn_mask, enable_gqa):
        given = (query, held, attn_mask, dropout_p, is_causal, scale)
        return _report.serve(_report.SDPA, _sdpa.run_over_cache, *given)
    key, value = plain(key), plain(value)
    why = _why_not(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
    if why is None:
        return _report.serve(_report.SDPA, _sdpa.run, query, key, value, attn_mask, dropout_p, is_causal, scale)
    options = {"scale": scale, "enable_gqa": enable_gqa}
    return _report.pass_on(why, _THEIRS, query, key, value, attn_mask, dropout_p, is_causal, **options)


def _takes_cache(query: Any, held: HeldRows, mask: Any, enable_gqa: bool) -> bool:
    """Whether attention reads the rows in the cache. Otherwise it gets a copy, whose call is checked as any other."""
    if is_transformed() or type(query) not in PLAIN or query.dim() != 4 or query.device.type != "cpu":
        return False
    batch, heads, _, dim = held.sizes("key")
    fits = query.shape[0] == batch and query.shape[3] == dim and TENSORS.cast(query).dtype == held.dtype
    grouped = query.shape[1] == heads or enable_gqa and query.shape[1] % heads == 0
    masked = mask is None or type(mask) in PLAIN and mask.dtype in (torch.bool, query.dtype) and mask.dim() <= 4
    return fits and grouped and masked and not (torch.is_grad_enabled() and query.requires_grad)


def _why_not(query: Any, key: Any, value: Any, attn_mask: Any, *numbers: Any) -> Optional[str]:
    """The reason why PyTorch has to serve this call; None: Fovea serves it."""
    if is_transformed():
        return "inside vmap, grad or another transform of torch.func"
    found = _sdpa.refusal(query, key, value, attn_mask, *numbers)
    if found is not None:
        argument, expected, got = found
        return f"{argument}: Fovea takes {expected}, got {got}"
    if not _takes_mask(query, attn_mask):
        return f"attn_mask: PyTorch takes truth values or the query's dtype {query.dtype}, got {attn_mask.dtype}"
    if has_tangent(query, key, value, attn_mask):
        return "tensors with forward-mode derivatives, which Fovea has not"
    return None


def _takes_mask(query: Any, mask: Any) -> bool:
    """Whether PyTorch would accept a mask of this dtype. Autocast casts all tensors except f64 to one dtype."""
    if mask is None or isinstance(mask, CausalBias) or mask.dtype in (torch.bool, query.dtype):
        return True
    if torch.is_autocast_enabled("cpu"):
        return torch.float64 not in (mask.dtype, query.dtype)
    return mask.dtype == torch.float32


def _multi_head_over_fovea() -> Callable[..., Any]:
    """PyTorch's multi_head_attention_forward, which `torch.nn.MultiheadAttention` and the transformer layers
    call, with another scaled_dot_product_attention among its globals.

    This is needed because a mode is switched off while it handles a function. multi_head_attention_forward is such a
    function, so the mode would not see the calls inside it.
    """
    return _with(
        torch.nn.functional.multi_head_attention_forward,
        scaled_dot_product_attention=_instead,
        has_torch_function=lambda tensors: False,
    )


def _with(theirs: Callable[..., Any], **seen: Any) -> Callable[..., Any]:
    """A copy of a PyTorch function with other values for these global names."""
    sight = {**theirs.__globals__, **seen}
    ours = types.FunctionType(theirs.__code__, sight, theirs.__name__, theirs.__defaults__, theirs.__closure__)
    ours.__kwdefaults__ = theirs.__kwdefaults__
    return ours


_engine: Any = getattr(torch.autograd, "_engine_run_backward", None)


def _engine_inside(*args: Any, **kwargs: Any) -> Any:
    """Runs the backward pass under a mode. `patched`'s own mode is switched off while it handles `backward` and
    `grad`, but recomputed forward functions must call the same attention as before."""
    with _recomputing():
        return _engine(*args, **kwargs)


_backward = _with(torch.autograd.backward, _engine_run_backward=_engine_inside)


def _tensor_backward(
    tensor: Any, gradient: Any = None, retain_graph: Any = None, create_graph: bool = False, inputs: Any = None
) -> None:
    _backward(tensor, gradient, retain_graph, create_graph, inputs=inputs)


# Those that a backward pass may call again. Functions of transformers join both as its modules are loaded.
_ATTENTION = {_THEIRS, torch.nn.functional.multi_head_attention_forward}
_INSTEAD: dict[Any, Callable[..., Any]] = {
    _THEIRS: _instead,
    torch.nn.functional.multi_head_attention_forward: _multi_head_over_fovea(),
    torch.autograd.backward: _backward,
    torch.autograd.grad: _with(torch.autograd.grad, _engine_run_backward=_engine_inside),
    torch.Tensor.backward: _tensor_backward,
}


def _add(call: Callable[..., Any], ours: Callable[..., Any]) -> None:
    _ATTENTION.add(call)
    _INSTEAD[call] = ours


def _is_on() -> bool:
    """Whether a mode of `patched` is on this thread's stack."""
    places = range(torch._C._len_torch_function_stack())
    return any(isinstance(torch._C._get_function_stack_at(place), _Patched) for place in places)


class _recomputing(_recompute.RememberedMode):
    """The mode for a backward pass inside `patched`. Functions that were called inside `patched` enter it themselves,
    wherever the backward pass runs. So calls that reach this mode were made outside and get PyTorch's attention.

    A graph cannot find out its caller. A graph that is made here recomputes calls that were made outside."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if torch.compiler.is_compiling() or func not in _ATTENTION or _recompute.is_outside(_engine_inside.__code__):
            return func(*args, **(kwargs or {}))
        return _run_instead(self, func, args, kwargs)

    @staticmethod
    def again() -> TorchFunctionMode:
        return _Patched()


def _run_instead(mode: Any, func: Any, args: Any, kwargs: Any) -> Any:
    if torch.compiler.is_compiling():
        return _INSTEAD[func](*args, **(kwargs or {}))
    if func in _ATTENTION:
        _recompute.remember(mode)
        return _INSTEAD[func](*args, **(kwargs or {}))
    try:
        return _INSTEAD[func](*args, **(kwargs or {}))
    finally:
        mode.after_backward()


class _Patched(_recompute.RememberedMode):
    """It has no `__enter__` and `__exit__` of its own: torch.compile traces only modes that have PyTorch's."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if not torch.compiler.is_compiling():  # a model calls other functions before its recurrences
            _transformers_recurrences.teach(_add, _is_on)
        if func in _INSTEAD:
            return _run_instead(self, func, args, kwargs)
        if not torch.compiler.is_compiling() and func in _operator.FORWARD:
            _recompute.remember(self)  # a graph that was made inside the mode; it does not enter the mode itself
        return func(*args, **(kwargs or {}))

    @staticmethod
    def again() -> TorchFunctionMode:
        return _Patched()


class _Reporting:
    """The mode and its report."""

    def __init__(self, report: _report.Report) -> None:
        self.report = report
        self._entered: list[tuple[_Patched, _report.Watch]] = []

    def __enter__(self) -> _report.Report:
        mode, watch = _Patched(), _report.Watch(self.report)
        mode.__enter__()
        watch.__enter__()  # entered last, so that it sees a function before the mode handles it
        self._entered.append((mode, watch))
        return self.report

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        mode, watch = self._entered.pop()
        watch.__exit__(kind, error, trace)
        mode.__exit__(kind, error, trace)
        if kind is None and self.report.served == 0:
            warnings.warn(f"fovea.torch.patched: {self.report}", stacklevel=2)


@overload
def patched() -> TorchFunctionMode: ...


@overload
def patched(report: Literal[False]) -> TorchFunctionMode: ...


@overload
def patched(report: Union[Literal[True], _report.Report]) -> "AbstractContextManager[_report.Report]": ...


def patched(report: Union[bool, _report.Report] = False) -> Any:
    """`with fovea.torch.patched():` makes an unchanged model use Fovea's attention.

    Inside the block, each call of `torch.nn.functional.scaled_dot_product_attention` runs
    `fovea.torch.scaled_dot_product_attention`, by whatever name and whenever it was imported. This holds in your own
    modules, in `torch.nn.MultiheadAttention` and the transformer layers (which then do not take their fused inference
    path), and in transformers models with attn_implementation="sdpa". Recurrences that transformers computes in its own
    code run on `fovea.recurrence`: the gated delta rule (Qwen3-Next, Qwen3.5, OLMo-hybrid), Kimi Delta Attention
    (Kimi-Linear), Mamba-2 (Bamba, Zamba2, Falcon-H1, Nemotron-H, Granite) and MiniMax's lightning attention. Calls that Fovea does not serve (other devices,
    nested tensors, wrong arguments) go to PyTorch's function as before.

    Nothing of PyTorch is overwritten: `patched` is a mode of this thread alone. (Functions of transformers that no mode
    could see are replaced, once, by functions that call the originals outside of such blocks.) Other threads, such as those of
    `DataParallel`, enter their own. Blocks may nest, a block that raises ends cleanly, and torch.compile follows the
    mode. If a backward pass recomputes attention (checkpoints, your own recomputing functions and saved-tensor
    hooks), it uses the attention of the forward pass: Fovea's for calls inside the block, PyTorch's for others,
    wherever `backward` is called. A gradient hook that calls attention must enter `patched` itself: without it a
    backward pass inside the block refuses the call, and one outside does not see it. Attention weights
    (`need_weights=True`) are computed by PyTorch without this function, with or without `patched`.

    Args:
        report: True: the block binds a `fovea.torch.Report`, which counts the calls that Fovea served, the calls
            passed on to PyTorch with reasons, and attention that could not reach Fovea. A block that served no call
            and ends without an error warns with the report's text. A report of another block: the counts are added to
            it. False: nothing is counted.

    >>> import torch, fovea.torch
    >>> layer = torch.nn.MultiheadAttention(8, 2, batch_first=True)
    >>> x = torch.ones(1, 4, 8)
    >>> with fovea.torch.patched(report=True) as report:
    ...     layer(x, x, x, need_weights=False)[0].shape
    torch.Size([1, 4, 8])
    >>> report.served, report.passed_on
    (1, 0)
    """
    if not isinstance(report, (bool, _report.Report)):
        raise InvalidArgument("patched", "report", "True, False or a fovea.torch.Report", shown(report))
    _transformers_recurrences.teach(_add, _is_on)
    if report is False:
        return _Patched()
    return _Reporting(_report.Report() if report is True else report)
