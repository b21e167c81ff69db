"""transformers' own slow paths of recurrences, under `patched`: the gated delta rule (Qwen3-Next, Qwen3.5,
OLMo-hybrid), Kimi Delta Attention (Kimi-Linear, Bailing, GLM), Mamba-2 (and Bamba, Zamba2, Falcon-H1, Nemotron-H,
Granite), the scan of Mamba-1 (FalconMamba, Jamba, Zamba), the short convolution in front of all these and of LFM2, and
MiniMax's lightning attention.

These are plain functions, which no mode sees. Each is replaced in its module by one that a mode sees: without a mode
it calls the original. RWKV-4 keeps its own loop: its state carries a running maximum, which the law of recurrences has
not.
"""

from __future__ import annotations

import functools
import sys
from typing import Any, Callable, Optional

import torch
from torch import Tensor
from torch.overrides import handle_torch_function

from .._recurrence import recurrence
from ..recurrences import ConstantDecay, ScalarDecay
from . import _fla, _report
from ._kinds import PLAIN, has_tangent, is_transformed
from ._mamba import causal_conv1d, causal_conv1d_update, selective_scan, selective_state_update
from ._ssd import ssd

_FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
Add = Callable[[Callable[..., Any], Callable[..., Any]], None]

# How many modules were loaded when they were last looked through.
_looked_through = 0
# The functions that this import of the package has put in place. Those of an earlier import are replaced again.
_ours: set[Any] = set()


def teach(add: Add, is_on: Callable[[], bool]) -> None:
    """Replaces the functions of all loaded models, each once.

    Args:
        add: is called with a function that modes see, and what the mode of `patched` runs in its place.
        is_on: whether a mode of `patched` is on, for graphs, which do not show plain functions to modes.
    """
    global _looked_through
    count = len(sys.modules)
    if count == _looked_through:
        return
    for module_name, module in list(sys.modules.items()):
        model = module_name.rpartition(".modeling_")[2]
        if not module_name.startswith("transformers.models.") or model == module_name:
            continue
        if getattr(getattr(module, "__spec__", None), "_initializing", False):
            return  # what it defines later would be missed
        for name, ours in _FUNCTIONS.items():
            if callable(vars(module).get(name)):
                _replace(module, name, f"{model}.{name}", ours, add, is_on)
        layer = vars(module).get("MiniMaxLightningAttention")
        if layer is not None:
            _replace(layer, "forward", f"{model}.{layer.__name__}", _lightning_attention, add, is_on)
    _looked_through = count


def _replace(
    owner: Any, name: str, label: str, ours: Callable[..., Any], add: Add, is_on: Callable[[], bool]
) -> None:
    theirs = vars(owner)[name]
    if theirs in _ours:
        return
    theirs = getattr(theirs, "fovea_replaced", theirs)
    served = functools.partial(_serve, label, ours, theirs)

    @functools.wraps(theirs)
    def call(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling():
            return served(*args, **kwargs) if is_on() else theirs(*args, **kwargs)
        if torch._C._is_torch_function_mode_enabled():
            return handle_torch_function(call, (), *args, **kwargs)
        return theirs(*args, **kwargs)

    call.fovea_replaced = theirs  # type: ignore[attr-defined]
    add(call, served)
    _ours.add(call)
    setattr(owner, name, call)


def _serve(way: str, ours: Callable[..., Any], theirs: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Calls Fovea's function if Fovea serves the call, else transformers'."""
    why = _why_not(*args, **kwargs) or _why_not_step(ours, *args, **kwargs) or _why_not_conv(ours, *args, **kwargs)
    if why is None:
        return _report.serve("transformers, " + way, ours, *args, **kwargs)
    return _report.pass_on(f"{way}: {why}", theirs, *args, **kwargs)


def _why_not(*args: Any, **kwargs: Any) -> Optional[str]:
    if is_transformed():
        return "inside vmap, grad or another transform of torch.func"
    tensors = [x for x in (*args, *kwargs.values()) if isinstance(x, Tensor)]
    if has_tangent(*tensors):
        return "tensors with forward-mode derivatives, which Fovea has not"
    for x in tensors:
        if x.device.type != "cpu":
            return f"Fovea takes tensors on the CPU, got one on {x.device}"
        if not torch.compiler.is_compiling() and type(x) not in PLAIN and torch._C._len_torch_dispatch_stack() == 0:
            return f"Fovea takes tensors of PyTorch's own class, got a {type(x).__name__}"
        if x.is_floating_point() and x.dtype not in _FLOATS:
            return f"Fovea takes f32, f64, bf16 and f16, got {x.dtype}"
    return None


def _wide(*tensors: Tensor) -> tuple[Tensor, ...]:
    """The tensors in f32, in which transformers computes recurrences; f64 stays f64."""
    return tuple(x if x.dtype == torch.float64 else x.float() for x in tensors)


def _by(
    rule: Callable[..., Any],
    query: Tensor,
    key: Tensor,
    value: Tensor,
    g: Tensor,
    beta: Tensor,
    initial_state: Optional[Tensor],
    output_final_state: bool,
    use_qk_l2norm_in_kernel: bool,
    cu_seqlens: Optional[Tensor],
) -> tuple[Tensor, Optional[Tensor]]:
    """By a function with fla's arguments, whose names transformers uses."""
    q, k, v = _wide(query, key, value)
    o, state = rule(
        q,
        k,
        v,
        g.to(v.dtype),
        beta.to(v.dtype),
        initial_state=initial_state if initial_state is None else initial_state.to(v.dtype),
        output_final_state=output_final_state,
        use_qk_l2norm_in_kernel=use_qk_l2norm_in_kernel,
        cu_seqlens=cu_seqlens,
    )
    return o.to(query.dtype).contiguous(), state


def _chunks(
    rule: Callable[..., Any],
    query: Tensor,
    key: Tensor,
    value: Tensor,
    g: Tensor,
    beta: Tensor,
    chunk_size: int = 64,
    initial_state: Optional[Tensor] = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    cu_seqlens: Optional[Tensor] = None,
    **kwargs: Any,
) -> tuple[Tensor, Optional[Tensor]]:
    options = (initial_state, output_final_state, use_qk_l2norm_in_kernel, cu_seqlens)
    return _by(rule, query, key, value, g, beta, *options)


def _steps(
    rule: Callable[..., Any],
    query: Tensor,
    key: Tensor,
    value: Tensor,
    g: Tensor,
    beta: Tensor,
    initial_state: Optional[Tensor] = None,
    output_final_state: bool = False,
    use_qk_l2norm_in_kernel: bool = False,
    cu_seqlens: Optional[Tensor] = None,
    **kwargs: Any,
) -> tuple[Tensor, Optional[Tensor]]:
    options = (initial_state, output_final_state, use_qk_l2norm_in_kernel, cu_seqlens)
    return _by(rule, query, key, value, g, beta, *options)


def _mamba2_scan(
    hidden_states: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    chunk_size: int,
    D: Optional[Tensor] = None,
    dt_bias: Optional[Tensor] = None,
    initial_states: Optional[Tensor] = None,
    dt_softplus: bool = False,
    dt_limit: tuple[float, float] = (0.0, float("inf")),
    return_final_states: bool = False,
    z: Optional[Tensor] = None,
    seq_idx: Optional[Tensor] = None,
    **kwargs: Any,
) -> Any:
    """transformers gives a result in f32, whatever the dtype of the model."""
    (x,) = _wide(hidden_states)
    options: dict[str, Any] = {"D": D, "z": z, "dt_bias": dt_bias, "dt_softplus": dt_softplus, "seq_idx": seq_idx}
    options.update(initial_states=initial_states, dt_limit=(float(dt_limit[0]), float(dt_limit[1])))
    found = ssd(x, dt, A, B, C, return_final_states=return_final_states, **options)
    if return_final_states:
        return found[0].float().contiguous(), found[1]
    return found.float().contiguous()


def _mamba2_step(
    state: Tensor,
    hidden_states: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Optional[Tensor] = None,
    dt_bias: Optional[Tensor] = None,
    dt_softplus: bool = False,
    z: Optional[Tensor] = None,
    **kwargs: Any,
) -> Tensor:
    """One token, which changes `state` [batch, heads, head_dim, state_size]. dt, A and dt_bias are expanded from one
    number for each head. A state that `ssd` made has state_size before head_dim in memory and is changed where it is."""
    x, steps, b, c = _wide(hidden_states, dt[..., 0], B, C)
    if dt_bias is not None:
        steps = steps + dt_bias[:, 0].to(steps.dtype)
    if dt_softplus:
        steps = torch.nn.functional.softplus(steps)
    gates = ScalarDecay((steps * A[:, 0, 0].to(steps.dtype))[..., None])
    one = tuple(t[:, :, None] for t in (c, b, x * steps[..., None]))
    turned = state.transpose(-1, -2)
    in_place = not torch.compiler.is_compiling() and not torch.is_grad_enabled()
    if in_place and turned.is_contiguous() and state.dtype == x.dtype:
        y, _ = recurrence(*one, decay=gates, scale=1.0, initial_state=turned, final_state=turned)
    else:
        y, after = recurrence(*one, decay=gates, scale=1.0, initial_state=turned.to(x.dtype), return_state=True)
        state.copy_(after.transpose(-1, -2))
    y = y[:, :, 0]
    if D is not None:
        y = y + x * D.to(x.dtype)
    if z is not None:
        y = y * torch.nn.functional.silu(z.to(x.dtype))
    return y.to(hidden_states.dtype)


def _why_not_step(ours: Callable[..., Any], *args: Any, **kwargs: Any) -> Optional[str]:
    """For one token of Mamba-2: the same function takes Mamba-1's numbers, which differ in each channel."""
    if ours is not _mamba2_step:
        return None
    given = dict(zip(("state", "hidden_states", "dt", "A", "B", "C", "D", "dt_bias"), args), **kwargs)
    dt, A, bias = given["dt"], given["A"], given.get("dt_bias")
    one_a_head = A.dim() == 3 and A.stride()[1:] == (0, 0) and dt.dim() == 3 and dt.stride(2) == 0
    if one_a_head and (bias is None or bias.stride(1) == 0):
        return None
    return "dt, A and dt_bias are not those of Mamba-2, one number for each head"


def _conv(
    hidden_states: Tensor, weight: Tensor, bias: Optional[Tensor] = None, activation: Optional[str] = None, **kwargs: Any
) -> Tensor:
    return causal_conv1d(hidden_states, weight, bias, activation=activation)


def _conv_step(
    hidden_states: Tensor,
    conv_state: Tensor,
    weight: Tensor,
    bias: Optional[Tensor] = None,
    activation: Optional[str] = None,
) -> Tensor:
    return causal_conv1d_update(hidden_states, conv_state, weight, bias, activation)


def _why_not_conv(ours: Callable[..., Any], *args: Any, **kwargs: Any) -> Optional[str]:
    if ours not in (_conv, _conv_step):
        return None
    names = ("hidden_states", "conv_state", "weight", "bias", "activation")
    given = dict(zip(names if ours is _conv_step else names[:1] + names[2:], args), **kwargs)
    activation, width = given.get("activation"), int(given["weight"].shape[-1])
    if activation not in (None, "silu", "swish"):
        return f"the convolution has SiLU or no activation behind it, got {activation!r}"
    if not 2 <= width <= 8:
        return f"the convolution has 2 to 8 taps, got {width}"
    return None


def _mamba_scan(
    hidden_states: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Optional[Tensor] = None,
    z: Optional[Tensor] = None,
    delta_bias: Optional[Tensor] = None,
    delta_softplus: bool = False,
    return_last_state: bool = False,
    **kwargs: Any,
) -> Any:
    return selective_scan(hidden_states, dt, A, B, C, D, z, delta_bias, delta_softplus, return_last_state)


def _mamba_step(
    state: Tensor,
    hidden_states: Tensor,
    dt: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Optional[Tensor] = None,
    dt_bias: Optional[Tensor] = None,
    dt_softplus: bool = False,
    z: Optional[Tensor] = None,
    **kwargs: Any,
) -> Tensor:
    return selective_state_update(state, hidden_states, dt, A, B, C, D, z, dt_bias, dt_softplus)


def _lightning_attention(
    layer: Any,
    hidden_states: Tensor,
    position_embeddings: Any = None,
    attention_mask: Optional[Tensor] = None,
    past_key_values: Any = None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor]:
    """MiniMax's layer: an additive write with one decay for each head (arXiv 2501.08313)."""
    batch, length, _ = hidden_states.shape
    mixed = layer.act_fn(layer.qkv_proj(hidden_states))
    if attention_mask is not None:
        mixed = mixed * attention_mask[:, :, None].to(mixed.dtype)
    mixed = mixed.view(batch, length, layer.num_attention_heads, 3 * layer.head_dim).transpose(1, 2)
    query, key, value = mixed.split(layer.head_dim, -1)
    state = None if past_key_values is None else past_key_values.get_linear_cache(layer.layer_idx)
    output, after = recurrence(
        query,
        key,
        value,
        decay=ConstantDecay(-layer.slope_rate.reshape(-1)),
        scale=1.0,
        initial_state=state,
        return_state=True,
    )
    after = after.to(value.dtype)  # a cache may also be continued outside of `patched`
    output = layer.norm(output.transpose(1, 2).reshape(batch, length, -1))
    output = layer.out_proj(torch.sigmoid(layer.output_gate(hidden_states)) * output)
    if past_key_values is not None:
        past_key_values.set_linear_cache(layer.layer_idx, after)
    return output, after


# The names of functions in transformers' modules.
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "torch_chunk_gated_delta_rule": functools.partial(_chunks, _fla.gated_delta_rule),
    "torch_recurrent_gated_delta_rule": functools.partial(_steps, _fla.gated_delta_rule),
    "chunk_kimi_delta_attention": functools.partial(_chunks, _fla.kda),
    "recurrent_kimi_delta_attention": functools.partial(_steps, _fla.kda),
    "mamba2_chunk_scan": _mamba2_scan,
    "mamba2_selective_state_update": _mamba2_step,
    "mamba_selective_scan": _mamba_scan,
    "mamba_selective_state_update": _mamba_step,
    "causal_conv1d_fn": _conv,
    "causal_conv1d_update": _conv_step,
}
