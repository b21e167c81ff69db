"""Checkpoints of PyTorch (`torch.utils.checkpoint`) and `patched`: what the backward pass computes again must come
from the attention that the forward pass called, wherever `backward` is called.

A checkpoint keeps a function, and calls it again in the backward pass. PyTorch has no hook there that a mode could
use, so `remember` puts the mode around that function, in the two places that keep it: `CheckpointFunction`'s context
(use_reentrant=True), which its running `forward` holds, and the `_CheckpointFrame` that the pack hook of a checkpoint
(use_reentrant=False) closes over. A PyTorch that keeps it elsewhere is refused by name and not trusted.
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any, Callable, Iterator, Optional

import torch
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack
from torch.utils import checkpoint

_FORWARD = checkpoint.CheckpointFunction.forward.__code__
_BACKWARD = checkpoint.CheckpointFunction.backward.__code__
# The attributes in which PyTorch keeps the functions to be called again.
_KEPT = {"CheckpointFunction": "run_function", "_CheckpointFrame": "recompute_fn"}


class RememberedMode(TorchFunctionMode):
    """A mode that checkpoints called inside it keep for the backward pass."""

    def __init__(self) -> None:
        super().__init__()
        # Checkpoints under way whose function makes this mode, and will make it again.
        self.older = [] if torch.compiler.is_compiling() else [*_contexts(), *_frames()]

    def again(self) -> TorchFunctionMode:
        """The mode for the backward pass."""
        raise NotImplementedError


class _Inside:
    """A function that a checkpoint calls again, inside the mode that its first call was made in."""

    def __init__(self, function: Callable[..., Any], mode: RememberedMode):
        self.function, self.mode = function, mode

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with self.mode.again():
            return self.function(*args, **kwargs)


def remember(current: Optional[RememberedMode] = None) -> None:
    """Puts the mode around what checkpoints under way on this thread will call again.

    Args:
        current: the mode that answers for a function, which PyTorch takes off its stack meanwhile.
    """
    modes = [mode for mode in _get_current_function_mode_stack() if isinstance(mode, RememberedMode)]
    outermost = modes[0] if modes else current
    if outermost is None:
        return
    older = [id(x) for x in outermost.older]
    # Frames are looked at without gradients alone, as in CheckpointFunction: 2 us a call that training saves.
    if not torch.is_grad_enabled() and not torch.is_inference_mode_enabled():
        for context in _contexts():
            if id(context) not in older:
                _wrap(context, _KEPT["CheckpointFunction"], outermost)
    for frame in _frames():
        if id(frame) not in older:
            _wrap(frame, _KEPT["_CheckpointFrame"], outermost)


def recomputes() -> bool:
    """Is a checkpoint computing again that `remember` has not seen, so that it was called outside the mode?"""
    frame: Optional[FrameType] = sys._getframe(1)
    while frame is not None:
        if frame.f_code is _BACKWARD:
            return not isinstance(getattr(frame.f_locals.get("ctx"), _KEPT["CheckpointFunction"], None), _Inside)
        if frame.f_code.co_name == "unpack_hook" and frame.f_globals is vars(checkpoint):
            return not isinstance(getattr(frame.f_locals.get("frame"), _KEPT["_CheckpointFrame"], None), _Inside)
        frame = frame.f_back
    return False


def _wrap(holder: Any, name: str, mode: RememberedMode) -> None:
    function = getattr(holder, name, None)
    if not callable(function):
        _refuse()
    if not isinstance(function, _Inside):
        setattr(holder, name, _Inside(function, mode))


def _contexts() -> Iterator[Any]:
    frame: Optional[FrameType] = sys._getframe(1)
    while frame is not None:
        if frame.f_code is _FORWARD:
            yield frame.f_locals["ctx"]
        frame = frame.f_back


def _frames() -> Iterator[Any]:
    """Of all checkpoints among the hooks of this thread: other hooks may lie above them."""
    hooks: Any = torch._C._autograd  # type: ignore[attr-defined, unused-ignore]
    if hooks._top_saved_tensors_default_hooks(True) is None:
        return
    found = []
    try:
        while (top := hooks._top_saved_tensors_default_hooks(True)) is not None:
            found.append(top)
            hooks._pop_saved_tensors_default_hooks()
    finally:
        for pack, unpack in reversed(found):
            hooks._push_saved_tensors_default_hooks(pack, unpack)
    for pack, _ in found:
        if getattr(pack, "__module__", None) == checkpoint.__name__ and "_checkpoint_hook" in pack.__qualname__:
            inside = dict(zip(pack.__code__.co_freevars, pack.__closure__ or ()))
            if "frame" not in inside:
                _refuse()
            yield inside["frame"].cell_contents


def _refuse() -> None:
    raise RuntimeError(
        f"fovea.torch.patched: torch.utils.checkpoint of PyTorch {torch.__version__} is not known, and may compute "
        "other attention in the backward pass than in the forward pass: enter patched() inside the checkpointed "
        "function instead"
    )


__all__ = ["RememberedMode", "recomputes", "remember"]
