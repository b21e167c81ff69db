"""PyTorch's three ways to a row: its own kernels, compiled FlexAttention, and the formula as one writes it."""

from __future__ import annotations

from typing import Any, Callable

from rival_case import MOST_MASK_BYTES, Call, Case, Refused, Results, Rival


class _Torch(Rival):
    library = "PyTorch"

    def __init__(self, threads: int) -> None:
        import torch

        torch.set_num_threads(threads)
        self.torch, self.version = torch, torch.__version__

    def tensor(self, case: Case, name: str) -> Any:
        found = self.torch.from_numpy(case.arrays[name])
        return found.view(self.torch.bfloat16) if found.dtype == self.torch.uint16 else found

    def timed(self, case: Case, forward: Callable[..., Any]) -> tuple[Call, Results]:
        """Forward alone, or backward alone through a graph that is kept."""
        torch, names = self.torch, ("query", "key", "value")
        leaves = [self.tensor(case, name) for name in names]
        kept: dict[str, Any] = {}
        if not case.backward:

            def call() -> None:
                with torch.no_grad():
                    kept["output"] = forward(*leaves)

        else:
            along = self.tensor(case, "d_output")
            leaves = [leaf.requires_grad_() for leaf in leaves]
            output = forward(*leaves)

            def call() -> None:
                found = torch.autograd.grad(output, leaves, along, retain_graph=True)
                kept.update({f"d_{name}": gradient for name, gradient in zip(names, found)})

        return call, lambda: {name: found.detach().float().numpy() for name, found in kept.items()}


class TorchSdpa(_Torch):
    name = "torch sdpa"

    def prepare(self, case: Case) -> tuple[Call, Results]:
        if case.score != "scaled-dot":
            raise Refused("knows no additive score")
        torch = self.torch
        options: dict[str, Any] = {"enable_gqa": case.groups > 1}
        if case.mask == "causal" and case.lengths[0] == case.lengths[1]:
            options["is_causal"] = True
        elif not case.unmasked:
            options["attn_mask"] = torch.from_numpy(case.dense_mask(4))
        sdpa = torch.nn.functional.scaled_dot_product_attention
        return self.timed(case, lambda q, k, v: sdpa(q, k, v, **options))


class TorchFlex(_Torch):
    name = "torch flex"

    def prepare(self, case: Case) -> tuple[Call, Results]:
        if case.score != "scaled-dot":
            raise Refused("knows no additive score")
        if case.backward:
            raise Refused("has no backward on a CPU")
        torch = self.torch
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention

        torch._dynamo.reset()
        mask = None
        if not case.unmasked:
            visible = case.visible(torch.tensor)
            rows, keys = case.lengths
            mask = create_block_mask(lambda b, h, q, k: visible(q, k), None, None, rows, keys, device="cpu")
        compiled = torch.compile(flex_attention, dynamic=False)
        gqa = case.groups > 1
        return self.timed(case, lambda q, k, v: compiled(q, k, v, block_mask=mask, enable_gqa=gqa))


class TorchEager(_Torch):
    """Additive scores as one writes them in PyTorch, in f32, some rows at a time so that [rows, keys, hidden] stays small."""

    name = "torch eager"

    def prepare(self, case: Case) -> tuple[Call, Results]:
        if case.score != "additive":
            raise Refused("is for additive scores")
        torch, vector = self.torch, self.tensor(case, "v").float()
        batch, heads, _, rows, keys, hidden = case.shape
        if case.backward and batch * heads * rows * keys * hidden * 4 > MOST_MASK_BYTES:
            raise Refused("its graph would keep [rows, keys, hidden] of all rows")
        at_once = max(1, (1 << 22) // (batch * heads * keys * hidden))

        def forward(q: Any, k: Any, v: Any) -> Any:
            parts = []
            for begin in range(0, rows, at_once):
                some = q[:, :, begin : begin + at_once, None, :].float() + k[:, :, None].float()
                parts.append(torch.softmax(torch.tanh(some) @ vector, -1) @ v.float())
            return torch.cat(parts, 2).to(q.dtype)

        return self.timed(case, forward)
