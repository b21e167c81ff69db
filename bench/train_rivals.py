"""PyTorch beside Fovea's trainings: `fovea bench train` starts `train_rivals.py THREADS` and speaks to it in lines of JSON, a
request and an answer each.

{"do": "list", "without": []}
    {"rivals": [{"name", "library", "version"} or {"name", "absent": reason}, ...]}
{"do": "prepare", "model", "vocabulary", "weights": FILE, "source": [...], "target": [...], "source_lengths", "target_lengths",
 "threads": [...], "precisions": [...]}
    {"preparing": NAME} before each
    {"prepared": [{"name", "loss", "gradient_norm"} or {"name", "refused": reason}, ...]}: of the batch, in f32, without dropout
{"do": "run", "name", "count", "threads", "precision"}
    {"seconds": [...]}, one an update
{"do": "drop"}
    {}

The models are those of train_torch.py: the same layers, weights and batch. Only what dropout draws differs.
"""

from __future__ import annotations

import gc
import math
import sys
from typing import Any, Callable

from rival_server import reason, seconds_of, serve

EAGER, COMPILED = "torch eager", "torch compiled"


def finite(number: float) -> float | None:
    """JSON has no NaN: Fovea takes null for it."""
    return number if math.isfinite(number) else None


class Server:
    def __init__(self, tell: Callable[[dict[str, Any]], None]) -> None:
        self.tell = tell
        self.updates: dict[tuple[str, str], Callable[[], None]] = {}

    def list_all(self, _: dict[str, Any]) -> dict[str, Any]:
        try:
            import torch
            import torch._inductor.config as inductor

            inductor.cpp.dynamic_threads = True  # compiled code then takes the number of threads of each run
        except Exception as error:  # whatever keeps the package from working
            return {"rivals": [{"name": name, "absent": reason(error)} for name in (EAGER, COMPILED)]}
        return {"rivals": [{"name": name, "library": "torch", "version": torch.__version__} for name in (EAGER, COMPILED)]}

    def prepare(self, request: dict[str, Any]) -> dict[str, Any]:
        prepared = []
        for name in (EAGER, COMPILED):
            if name in request.get("without", []):
                continue
            self.tell({"preparing": name})
            try:
                loss, gradient_norm = self._prepare(name, request)
                prepared.append({"name": name, "loss": finite(loss), "gradient_norm": finite(gradient_norm)})
            except Exception as error:  # a rival's own error is its reason
                prepared.append({"name": name, "refused": reason(error)})
        return {"prepared": prepared}

    def _prepare(self, name: str, request: dict[str, Any]) -> tuple[float, float]:
        import torch
        import train_torch

        if request["model"] not in train_torch.MODELS:
            raise ValueError(f"no model like {request['model']} here")
        from safetensors.torch import load_file

        lengths = [torch.tensor(request[side + "_lengths"]) for side in ("source", "target")]
        ids = [torch.tensor(request[side]).reshape(len(of), -1) for side, of in zip(("source", "target"), lengths)]
        batch, tensors = train_torch.Batch(*ids, *lengths), load_file(request["weights"])
        torch.set_num_threads(max(request["threads"]))
        for precision in request["precisions"]:
            torch._dynamo.reset()
            model = train_torch.MODELS[request["model"]](request["vocabulary"])
            train_torch.load(model, tensors)
            first = train_torch.first_update(model, batch)
            update = train_torch.updates(model, batch, compiled=name == COMPILED, bf16=precision == "bf16")
            for _ in range(2):
                update()
            self.updates[name, precision] = update
        return first

    def run(self, request: dict[str, Any]) -> dict[str, Any]:
        import torch

        torch.set_num_threads(request["threads"])
        return {"seconds": seconds_of(self.updates[request["name"], request["precision"]], request["count"])}

    def drop(self, _: dict[str, Any]) -> dict[str, Any]:
        self.updates.clear()
        gc.collect()
        return {}


if __name__ == "__main__":
    sys.exit(serve(Server))
