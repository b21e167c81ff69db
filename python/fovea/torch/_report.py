"""The report of a block of `fovea.torch.patched(report=True)`: calls that Fovea served, calls passed on with reasons,
and attention that could not reach it."""

from __future__ import annotations

import inspect
import os
import sys
import threading
from typing import Any, Callable, Optional

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

# The entry points by which a call may reach Fovea, as a report names them.
SDPA = "torch.nn.functional.scaled_dot_product_attention"
INTERFACE = 'the attention interface of transformers (attn_implementation="fovea")'
GRAPHS = "graphs of torch.compile, torch.export or a tracer"

# Reasons contain shapes, so a long run could have any number of different ones.
_MOST_REASONS = 64
_OTHER = "(further reasons)"

# How many reporting blocks are active in all threads. Calls outside of such blocks read only this number.
_open = 0
_lock = threading.Lock()


class _Local(threading.local):
    reports: "tuple[Report, ...]" = ()
    # Set inside a call that is already counted, and that may run as a graph.
    inside = False


_local = _Local()

_ADVICE = (
    "- A model with attention written out (transformers' attn_implementation=\"eager\") calls matmul and softmax. "
    'Set attn_implementation="sdpa", or call fovea.torch.register_with_transformers() and set "fovea".',
    "- torch.nn.MultiheadAttention with need_weights=True, its default, computes the weights itself. Call it with "
    "need_weights=False, or put fovea.nn.MultiheadAttention in its place.",
    "- Modules from torch.jit.script and torch.jit.trace run outside of Python. Use the module that they were made of.",
    "- Other threads are not covered: each enters a block of its own.",
)


class Report:
    """The report of `with fovea.torch.patched(report=True) as report:`; `print(report)` shows it as text.

    The counts grow while the block runs and can be read after it. A report counts the calls of the thread that
    entered the block. `patched(report=other.report)` in another thread adds to the same report.

    Attributes, all read-only:
        served: how many calls Fovea computed.
        served_by: the same by entry point, a dict of counts. A graph of torch.compile counts each time it runs, not
            when it is made.
        passed_on: how many calls PyTorch's own scaled_dot_product_attention, or transformers' own code, computed.
        reasons: a dict from each reason for passing a call on to the number of calls. Under torch.compile the
            decision is made once, when the graph is made, and is not counted.
        elsewhere: attention that could not reach Fovea, a dict from its kind and place to a count: a softmax over
            scores in the model's own code (with its place in the code), MultiheadAttention that returns weights,
            scripted modules. The first is a guess: any softmax over the last of three or more axes.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[str, dict[str, int]] = {"served": {}, "passed on": {}, "elsewhere": {}}

    @property
    def served(self) -> int:
        """How many calls Fovea computed."""
        return sum(self.served_by.values())

    @property
    def served_by(self) -> dict[str, int]:
        """The same by entry point."""
        return self._copy("served")

    @property
    def passed_on(self) -> int:
        """How many calls PyTorch's or transformers' own code computed."""
        return sum(self.reasons.values())

    @property
    def reasons(self) -> dict[str, int]:
        """From each reason for passing a call on to the number of calls."""
        return self._copy("passed on")

    @property
    def elsewhere(self) -> dict[str, int]:
        """Attention that could not reach Fovea, from its kind and place to a count."""
        return self._copy("elsewhere")

    def _copy(self, kind: str) -> dict[str, int]:
        with self._lock:
            return dict(self._counts[kind])

    def _add(self, kind: str, what: str) -> None:
        with self._lock:
            counts = self._counts[kind]
            if what not in counts and len(counts) >= _MOST_REASONS:
                what = _OTHER
            counts[what] = counts.get(what, 0) + 1

    def __repr__(self) -> str:
        elsewhere = sum(self.elsewhere.values())
        return f"<fovea report: {self.served} served, {self.passed_on} passed on, {elsewhere} elsewhere>"

    def __str__(self) -> str:
        served, reasons, elsewhere = self.served_by, self.reasons, self.elsewhere
        lines = [f"Fovea served {_calls(sum(served.values()))} of attention."]
        lines += _listed(served)
        if reasons:
            lines.append(f"PyTorch computed {_calls(sum(reasons.values()))} that Fovea does not serve:")
            lines += _listed(reasons)
        if elsewhere:
            lines.append("Attention that did not come through scaled_dot_product_attention:")
            lines += _listed(elsewhere)
        if not served:
            lines.append("What to look for:")
            lines += _ADVICE
        return "\n".join(lines)


def _calls(count: int) -> str:
    return "no call" if count == 0 else "1 call" if count == 1 else f"{count} calls"


def _listed(counts: dict[str, int]) -> list[str]:
    return [f"  {count} x {what}" for what, count in sorted(counts.items(), key=lambda item: (-item[1], item[0]))]


def _counts() -> bool:
    """Whether this call counts. It does not while torch.compile traces the code, which must not see counters. It does
    not inside a call that is already counted: in nested blocks each mode sees the calls that the inner one passed
    on."""
    return not torch.compiler.is_compiling() and _open > 0 and bool(_local.reports) and not _local.inside


def serve(way: str, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Calls, and counts one call as served."""
    return _counted("served", way, call, args, kwargs)


def pass_on(reason: str, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Calls, and counts one call as passed on."""
    return _counted("passed on", reason, call, args, kwargs)


def _counted(kind: str, what: str, call: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """Counts before calling: a checkpoint's recomputation ends a call by an exception once it has the tensors it
    needs."""
    if not _counts():
        return call(*args, **kwargs)
    _note(kind, what)
    _local.inside = True
    try:
        return call(*args, **kwargs)
    finally:
        _local.inside = False


def ran_in_graph() -> None:
    """Counts a run of the operator, unless the call is already counted."""
    if _open and _local.reports and not _local.inside:
        _note("served", GRAPHS)


def _note(kind: str, what: str) -> None:
    """Adds to the reports of this thread."""
    for report in _local.reports:
        report._add(kind, what)


class Watch:
    """While it is entered, `report` counts this thread's calls."""

    def __init__(self, report: Report) -> None:
        self.report = report
        self._mode = _Watching(report)
        self._hook: Any = None

    def __enter__(self) -> None:
        global _open
        # No mode sees calls of scripted modules. This hook does, but PyTorch has it only for all threads at once.
        self._hook = torch.nn.modules.module.register_module_forward_pre_hook(_before_module)
        self._mode.__enter__()
        if not any(report is self.report for report in _local.reports):
            _local.reports = (*_local.reports, self.report)
        else:  # the block is nested in itself: a call counts once
            self._mode.report = None
        with _lock:
            _open += 1

    def __exit__(self, *error: Any) -> None:
        global _open
        with _lock:
            _open -= 1
        if self._mode.report is not None:
            _local.reports = tuple(report for report in _local.reports if report is not self.report)
        self._mode.__exit__(*error)
        self._hook.remove()


def _before_module(module: Any, args: Any) -> None:
    if not torch.compiler.is_compiling() and isinstance(module, torch.jit.ScriptModule):
        name = getattr(module, "original_name", type(module).__name__)
        _note("elsewhere", f"scripted module {name}: what it calls inside is not seen")


class _Watching(TorchFunctionMode):
    """A mode that sees the functions of attention which a model computes in its own code."""

    def __init__(self, report: Report) -> None:
        super().__init__()
        self.report: Optional[Report] = report

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not torch.compiler.is_compiling() and self.report is not None:
            look = _LOOK.get(func)
            what = None if look is None else look(args, kwargs)
            if what is not None:
                self.report._add("elsewhere", what)
        return func(*args, **kwargs)


def _softmax(args: Any, kwargs: Any) -> Optional[str]:
    scores = args[0] if args else kwargs.get("input")
    axis = args[1] if len(args) > 1 else kwargs.get("dim")
    if not isinstance(scores, Tensor) or not isinstance(axis, int) or scores.dim() < 3:
        return None
    if axis not in (-1, scores.dim() - 1):
        return None
    return f"softmax over scores, {_place()}"


_PACKAGES = tuple(os.path.dirname(str(module.__file__)) + os.sep for module in (torch, sys.modules["fovea"]))


def _place() -> str:
    """The place of the innermost code that belongs neither to PyTorch nor to Fovea."""
    frame: Any = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGES):
        frame = frame.f_back
    if frame is None:
        return "inside PyTorch"
    folder, name = os.path.split(frame.f_code.co_filename)
    return f"{os.path.basename(folder)}/{name}, line {frame.f_lineno}, in {frame.f_code.co_name}"


_MULTI_HEAD = torch.nn.functional.multi_head_attention_forward
_MULTI_HEAD_ARGUMENTS = inspect.signature(_MULTI_HEAD)


def _multi_head(args: Any, kwargs: Any) -> Optional[str]:
    given = _MULTI_HEAD_ARGUMENTS.bind(*args, **kwargs).arguments
    if not given.get("need_weights", True):
        return None
    return "MultiheadAttention with need_weights=True, which computes its weights without scaled_dot_product_attention"


_LOOK: dict[Any, Callable[[Any, Any], Optional[str]]] = {
    torch.nn.functional.softmax: _softmax,
    torch.softmax: _softmax,
    torch.Tensor.softmax: _softmax,
    _MULTI_HEAD: _multi_head,
}
