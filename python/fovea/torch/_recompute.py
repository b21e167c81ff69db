"""`patched` and recomputation in the backward pass: a recomputed call must use the same attention as the forward
pass, wherever `backward` is called.

PyTorch has no hook for this. So each call of attention inside the mode looks for the functions that will call it
again, and wraps each of them in the mode:

- the backward of an autograd function whose forward is running: a user's, or that of a checkpoint with
  use_reentrant=True. The engine looks up `apply` on the call itself, where an attribute of the call replaces it. A
  call that PyTorch does not expose (of a class with `setup_context`) is recognised by its number.
- the function of a checkpoint with use_reentrant=False, in the `_CheckpointFrame` of its pack hook.
- the unpack hook of a user's pair of saved-tensor hooks.

Calls without such a mark were made outside. A version of PyTorch that works differently is refused with an error.
"""

from __future__ import annotations

import bisect
import functools
import sys
import threading
import weakref
from types import FrameType
from typing import Any, Callable, Iterator, Optional

import torch
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack
from torch.utils import checkpoint

from . import _functions

# The attribute in which PyTorch's `_CheckpointFrame` keeps the function to be called again.
_KEPT = "recompute_fn"


class RememberedMode(TorchFunctionMode):
    """A mode that backward passes enter to recompute calls that were made inside it."""

    def __init__(self) -> None:
        super().__init__()
        # The running calls that entered this mode and will enter it again.
        self.older: list[Any] = []
        # Nodes that this thread has made since entering have this number or a greater one.
        self.first = 0
        if not torch.compiler.is_compiling():
            calls = [under_way.call or under_way.frame for under_way in _functions.forwards()]
            hooks = _hooks()
            self.older = [*calls, *_frames(hooks), *(unpack for _, unpack in hooks)]
            self.first = _functions.next_number()

    @staticmethod
    def again() -> TorchFunctionMode:
        """The mode for the backward pass."""
        raise NotImplementedError

    def after_backward(self) -> None:
        """Nodes that a backward pass made anew do not count as made inside the mode, unless it entered the mode."""
        if all(under_way.call is not None for under_way in _functions.forwards()):
            self.first = _functions.next_number()


class _Inside:
    """A function that runs again in the mode of its first call."""

    def __init__(self, function: Callable[..., Any], again: Callable[[], TorchFunctionMode]):
        self.function, self.again = function, again

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with self.again():
            return self.function(*args, **kwargs)


def remember(current: Optional[RememberedMode] = None) -> None:
    """Wraps in the mode everything that is running on this thread and may call attention again.

    Args:
        current: the mode that is handling a function; PyTorch has taken it off its stack meanwhile.
    """
    if torch.is_inference_mode_enabled():
        return
    modes = [mode for mode in _get_current_function_mode_stack() if isinstance(mode, RememberedMode)]
    outermost = modes[0] if modes else current
    if outermost is None:
        return
    older = {id(x) for x in outermost.older}
    for under_way in _functions.forwards():
        if id(under_way.call or under_way.frame) in older:
            continue
        if under_way.call is not None:
            _wrap_call(under_way.call, outermost.again)
        else:
            _wrap_classes(under_way.classes, outermost)
    hooks = _hooks()
    if hooks:
        for frame in _frames(hooks):
            if id(frame) not in older:
                _wrap_frame(frame, outermost.again)
        _wrap_hooks(hooks, older, outermost.again)


def is_outside(end: Any) -> bool:
    """Whether a backward pass is recomputing a call that was made outside the mode. Calls that were made inside enter
    the mode themselves.

    Args:
        end: the code object of the function that runs the backward pass. Its callers are not examined.

    Raises:
        RuntimeError: a hook calls attention, and its purpose cannot be determined.
    """
    frame: Optional[FrameType] = sys._getframe(1)
    while frame is not None and frame.f_code is not end:
        call = _functions.backward_in(frame)
        if call is not None:
            return not isinstance(vars(call).get("apply"), _Inside) and not _is_numbered(call)
        if frame.f_code.co_name == "unpack_hook" and frame.f_globals is vars(checkpoint):
            return not isinstance(getattr(frame.f_locals.get("frame"), _KEPT, None), _Inside)
        frame = frame.f_back
    raise RuntimeError(
        "fovea.torch.patched: a hook of the backward pass calls attention, and nothing says whether it computes again "
        "what was called inside the block or outside: enter patched() in the hook, or call backward outside the block"
    )


def _wrap_call(call: Any, again: Callable[[], TorchFunctionMode]) -> None:
    if "apply" in vars(call):
        return
    if not _engine_asks_the_call():
        _refuse("torch.autograd.Function")
    reference = weakref.ref(call)  # the call keeps this alive
    for name in _functions.ENGINE_CALLS:
        setattr(call, name, _Inside(functools.partial(_backward_of, reference, name), again))


def _backward_of(reference: Any, name: str, *gradients: Any) -> Any:
    call = reference()
    return getattr(type(call), name)(call, *gradients)


@functools.lru_cache(maxsize=None)
def _engine_asks_the_call() -> bool:
    """Whether this PyTorch looks up `apply` among a call's own attributes."""
    asked = []

    class Probe(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            for name in _functions.ENGINE_CALLS:
                setattr(ctx, name, lambda gradient: asked.append(gradient))
            return x.clone()

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            return None

    with torch.enable_grad(), torch._C.DisableTorchFunction():
        Probe.apply(torch.zeros((), requires_grad=True)).backward()
    return bool(asked)


class _Numbers:
    """Numbers of nodes, as spans [begin, end) that do not touch: at most one for each block."""

    def __init__(self) -> None:
        self._begins: list[int] = []
        self._ends: list[int] = []
        self._lock = threading.Lock()

    def add(self, begin: int, end: int) -> None:
        with self._lock:
            first, last = bisect.bisect_left(self._ends, begin), bisect.bisect_right(self._begins, end)
            if first < last:
                begin, end = min(begin, self._begins[first]), max(end, self._ends[last - 1])
            self._begins[first:last], self._ends[first:last] = [begin], [end]

    def __contains__(self, number: int) -> bool:
        with self._lock:
            at = bisect.bisect_right(self._begins, number) - 1
            return at >= 0 and number < self._ends[at]


# Calls made inside the mode, of classes whose calls are not exposed.
_numbers: "weakref.WeakKeyDictionary[Any, _Numbers]" = weakref.WeakKeyDictionary()


def _is_numbered(call: Any) -> bool:
    numbers = _numbers.get(call._forward_cls)
    return numbers is not None and _functions.number_of(call) in numbers


def _wrap_classes(classes: "tuple[Any, ...]", mode: RememberedMode) -> None:
    for cls in classes:
        if cls not in _numbers:
            _numbers[cls] = _Numbers()
            for name in _functions.ENGINE_CALLS:
                setattr(cls._backward_cls, name, _inside_if_numbered(getattr(cls._backward_cls, name), mode.again))
        # This call got its number inside the mode, like all calls of the class since then.
        _numbers[cls].add(mode.first, _functions.next_number())


def _inside_if_numbered(theirs: Callable[..., Any], again: Callable[[], TorchFunctionMode]) -> Callable[..., Any]:
    def apply(self: Any, *gradients: Any) -> Any:
        if not _is_numbered(self):
            return theirs(self, *gradients)
        with again():
            return theirs(self, *gradients)

    return apply


def _wrap_frame(frame: Any, again: Callable[[], TorchFunctionMode]) -> None:
    function = getattr(frame, _KEPT, None)
    if not callable(function):
        _refuse("torch.utils.checkpoint")
    if not isinstance(function, _Inside):
        setattr(frame, _KEPT, _Inside(function, again))


def _hooks() -> "list[tuple[Any, Any]]":
    """The saved-tensor hooks of this thread, from the innermost outwards: pairs (pack, unpack)."""
    of: Any = torch._C._autograd  # type: ignore[attr-defined, unused-ignore]
    if of._top_saved_tensors_default_hooks(True) is None:
        return []
    found = _taken_off()
    _put_on(found)
    return found


def _taken_off() -> "list[tuple[Any, Any]]":
    of: Any = torch._C._autograd  # type: ignore[attr-defined, unused-ignore]
    found = []
    while (top := of._top_saved_tensors_default_hooks(True)) is not None:
        found.append(top)
        of._pop_saved_tensors_default_hooks()
    return found


def _put_on(hooks: "list[tuple[Any, Any]]") -> None:
    of: Any = torch._C._autograd  # type: ignore[attr-defined, unused-ignore]
    for pack, unpack in reversed(hooks):
        of._push_saved_tensors_default_hooks(pack, unpack)


def _frames(hooks: "list[tuple[Any, Any]]") -> Iterator[Any]:
    """The frames of the checkpoints among these hooks."""
    for pack, _ in hooks:
        if getattr(pack, "__module__", None) == checkpoint.__name__ and "_checkpoint_hook" in pack.__qualname__:
            inside = dict(zip(pack.__code__.co_freevars, pack.__closure__ or ()))
            if "frame" not in inside:
                _refuse("torch.utils.checkpoint")
            yield inside["frame"].cell_contents


def _wrap_hooks(hooks: "list[tuple[Any, Any]]", older: "set[int]", again: Callable[[], TorchFunctionMode]) -> None:
    """Wraps the hooks. Attention saves its tensors after this call, and the backward pass runs in reverse order. So
    it reaches these hooks before tensors that were saved earlier."""

    def is_marked(unpack: Any) -> bool:
        of_torch = str(getattr(unpack, "__module__", "")).split(".")[0] == "torch"
        return of_torch or isinstance(unpack, _Inside) or id(unpack) in older

    if not all(is_marked(unpack) for _, unpack in hooks):
        _taken_off()
        _put_on([(pack, unpack if is_marked(unpack) else _Inside(unpack, again)) for pack, unpack in hooks])


def _refuse(what: str) -> None:
    raise RuntimeError(
        f"fovea.torch.patched: {what} of PyTorch {torch.__version__} is not known, and may compute "
        "other attention in the backward pass than in the forward pass: enter patched() inside the function that is "
        "computed again instead"
    )


__all__ = ["RememberedMode", "is_outside", "remember"]
