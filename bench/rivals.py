"""Other libraries' attention beside Fovea's: `fovea bench kernels` starts `rivals.py THREADS` and speaks to it in lines of
JSON, a request and an answer each. Operands come as files of raw elements, so that every rival computes with the same bits.

{"do": "list", "without": [NAME, ...]}
    {"rivals": [{"name", "library", "version"} or {"name", "absent": reason}, ...]}
{"do": "prepare", "pass", "score", "mask", "dtype", "shape", "tensors": {NAME: {"file", "dtype", "shape"}}}
    {"prepared": [{"name", "error", "seconds"} or {"name", "refused": reason}, ...]}: how far its results are from Fovea's
    (relative Frobenius norm, the worst of output or gradients), and a first guess of its time
{"do": "run", "name", "count"}
    {"seconds": [...]}, one each
{"do": "drop"}
    {}
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import json
import os
import re
import resource
import sys
import time
from typing import Any, Callable, Iterator, Optional

import numpy as np

_MOST_MASK_BYTES = 3 << 30  # of one dense mask, for those that know no other


class Refused(Exception):
    """What a rival cannot do, in a few words."""


@dataclasses.dataclass
class Case:
    backward: bool
    score: str
    mask: str
    dtype: str
    shape: list[int]
    arrays: dict[str, Any]  # bf16 as uint16

    @property
    def lengths(self) -> tuple[int, int]:
        return self.shape[3], self.shape[4]

    @property
    def groups(self) -> int:
        return self.shape[1] // self.shape[2]

    @property
    def unmasked(self) -> bool:
        return self.mask == "everything"

    def visible(self, numbers: Any) -> Callable[[Any, Any], Any]:
        """Whether the key at a position is visible to the query in a row. `numbers`: a list of integers as an array."""
        offset = self.lengths[1] - self.lengths[0]
        found = [int(number) for number in re.findall(r"\d+", self.mask)]
        if self.mask == "everything":
            return lambda row, key: key >= 0
        if self.mask == "causal":
            return lambda row, key: key <= row + offset
        if self.mask.startswith("window("):
            back, ahead = found
            return lambda row, key: (key >= row + offset - back) & (key <= row + offset + ahead)
        if self.mask.startswith("documents("):
            of = numbers([sum(at >= border for border in found) for at in range(self.lengths[1])])
            return lambda row, key: of[row + offset] == of[key]
        raise Refused(f"does not know the mask {self.mask}")

    def dense_mask(self, element_bytes: int) -> Any:
        """[query_len, key_len] of booleans, for those whose masks are matrices of so many bytes an element."""
        rows, keys = self.lengths
        if rows * keys * element_bytes > _MOST_MASK_BYTES:
            raise Refused(f"its mask of all pairs would take {rows * keys * element_bytes >> 20} MiB")
        key = np.arange(keys)
        visible = self.visible(np.array)
        return np.stack([np.asarray(visible(np.int64(row), key)) for row in range(rows)])


Call = Callable[[], None]
Results = Callable[[], dict[str, Any]]


class Rival:
    """A way to compute a case: `prepare` gives a call to time, and its last results as f32 arrays."""

    name = library = version = ""

    def __init__(self, threads: int) -> None:
        raise NotImplementedError

    def prepare(self, case: Case) -> tuple[Call, Results]:
        raise NotImplementedError


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
        if case.backward and batch * heads * rows * keys * hidden * 4 > _MOST_MASK_BYTES:
            raise Refused("its graph would keep [rows, keys, hidden] of all rows")
        at_once = max(1, (1 << 22) // (batch * heads * keys * hidden))

        def forward(q: Any, k: Any, v: Any) -> Any:
            parts = []
            for begin in range(0, rows, at_once):
                some = q[:, :, begin : begin + at_once, None, :].float() + k[:, :, None].float()
                parts.append(torch.softmax(torch.tanh(some) @ vector, -1) @ v.float())
            return torch.cat(parts, 2).to(q.dtype)

        return self.timed(case, forward)


class _Onnx(Rival):
    library = "ONNX Runtime"

    def __init__(self, threads: int) -> None:
        import onnx
        import onnxruntime

        onnxruntime.set_default_logger_severity(4)
        self.onnx, self.ort, self.threads = onnx, onnxruntime, threads
        self.version = onnxruntime.__version__

    def refuse(self, case: Case, dtypes: tuple[str, ...]) -> None:
        if case.score != "scaled-dot":
            raise Refused("knows no additive score")
        if case.backward:
            raise Refused("has no backward")
        if case.dtype not in dtypes:
            raise Refused(f"has no {case.dtype} on a CPU")

    def session(self, kind: str, feeds: dict[str, Any], names: list[str], outputs: list[str], **attributes: Any) -> Any:
        """One node of Microsoft's domain, its operands bound: a run copies nothing."""
        helper, types = self.onnx.helper, self.onnx.TensorProto
        of = {"float32": types.FLOAT, "float16": types.FLOAT16, "int32": types.INT32}
        element = of[str(feeds["query"].dtype)]
        node = helper.make_node(kind, names, outputs, domain="com.microsoft", **attributes)
        inputs = [
            helper.make_tensor_value_info(name, of[str(array.dtype)], array.shape) for name, array in feeds.items()
        ]
        results = [helper.make_tensor_value_info(name, element, None) for name in outputs]
        graph = helper.make_graph([node], "attention", inputs, results)
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
        options = self.ort.SessionOptions()
        options.intra_op_num_threads = self.threads
        options.inter_op_num_threads = 1
        return self.ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])

    def bound(self, session: Any, feeds: dict[str, Any], shared: dict[str, str], rows: Any) -> tuple[Any, Any]:
        """`shared`: outputs that lie in the memory of an input."""
        values = {name: self.ort.OrtValue.ortvalue_from_numpy(array) for name, array in feeds.items()}
        output = self.ort.OrtValue.ortvalue_from_numpy(np.zeros_like(rows))
        binding = session.io_binding()
        for name, value in values.items():
            binding.bind_ortvalue_input(name, value)
        binding.bind_ortvalue_output("output", output)
        for name in [each.name for each in session.get_outputs()][1:]:
            if name in shared:
                binding.bind_ortvalue_output(name, values[shared[name]])
            else:
                binding.bind_output(name, "cpu")
        return binding, output


def _packed(array: Any) -> Any:
    """[batch, heads, rows, dim] → [batch, rows, heads · dim]."""
    batch, heads, rows, dim = array.shape
    return np.ascontiguousarray(array.transpose(0, 2, 1, 3)).reshape(batch, rows, heads * dim)


def _unpacked(array: Any, heads: int) -> Any:
    batch, rows, width = array.shape
    return array.reshape(batch, rows, heads, width // heads).transpose(0, 2, 1, 3)


class OnnxMha(_Onnx):
    name = "ort mha"

    def prepare(self, case: Case) -> tuple[Call, Results]:
        self.refuse(case, ("f32",))
        if case.groups > 1:
            raise Refused("has no grouped heads (GroupQueryAttention has)")
        heads = case.shape[1]
        feeds = {name: _packed(case.arrays[name]) for name in ("query", "key", "value")}
        names, causal = ["query", "key", "value"], case.mask == "causal"
        if not case.unmasked and not causal:
            bias = np.where(case.dense_mask(4), np.float32(0), np.float32(-np.inf))
            feeds["bias"] = bias[None, None]
            names += ["", "", "bias"]
        attributes = {"num_heads": heads, "unidirectional": int(causal)}
        session = self.session("MultiHeadAttention", feeds, names, ["output"], **attributes)
        binding, output = self.bound(session, feeds, {}, feeds["query"])
        return lambda: session.run_with_iobinding(binding), lambda: {"output": _unpacked(output.numpy(), heads)}


class OnnxGqa(_Onnx):
    """Always causal, so it has rows for causal masks, windows and decoding, where the cache holds all keys but the last."""

    name = "ort gqa"

    def prepare(self, case: Case) -> tuple[Call, Results]:
        self.refuse(case, ("f32", "f16"))
        batch, heads, kv, rows, keys, dim = case.shape
        decoding = rows == 1 and keys > 1
        window = re.fullmatch(r"window\((\d+),0\)", case.mask)
        if not decoding and case.mask != "causal" and not window:
            raise Refused("is always causal")
        arrays = case.arrays
        feeds = {"query": _packed(arrays["query"])}
        for name in ("key", "value"):
            feeds[name] = _packed(arrays[name][:, :, -1:] if decoding else arrays[name])
        cached = keys if decoding else 0
        for name in ("key", "value"):
            past = np.zeros((batch, kv, cached, dim), feeds["query"].dtype)
            past[:, :, : keys - 1] = arrays[name][:, :, : keys - 1] if decoding else 0
            feeds[f"past_{name}"] = past
        feeds["seqlens"] = np.full(batch, keys - 1, np.int32)
        feeds["total"] = np.array(keys, np.int32)
        names, outputs = list(feeds), ["output", "present_key", "present_value"]
        attributes = {"num_heads": heads, "kv_num_heads": kv}
        if window:
            attributes["local_window_size"] = int(window[1]) + 1
        if not decoding:
            del feeds["past_key"], feeds["past_value"]
            names[3] = names[4] = ""
        session = self.session("GroupQueryAttention", feeds, names, outputs, **attributes)
        shared = {"present_key": "past_key", "present_value": "past_value"} if decoding else {}
        binding, output = self.bound(session, feeds, shared, feeds["query"])
        return lambda: session.run_with_iobinding(binding), lambda: {"output": _unpacked(output.numpy(), heads)}


class OneDnnSdpa(Rival):
    name, library = "onednn", "oneDNN, graph API"

    def __init__(self, threads: int) -> None:
        import onednn_sdpa

        # Its threads are TBB's, which counts the cores that the process may use.
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
        self.module, self.dnn = onednn_sdpa, onednn_sdpa.OneDnn()
        self.version = self.dnn.version

    def prepare(self, case: Case) -> tuple[Call, Results]:
        if case.score != "scaled-dot":
            raise Refused("knows no additive score")
        if case.backward:
            raise Refused("its graph API documents training of SDPA for GPUs only")
        mask = None
        if not case.unmasked:
            mask = np.where(case.dense_mask(4), np.float32(0), np.float32(-np.inf))
        operands = [case.arrays[name] for name in ("query", "key", "value")]
        sdpa = self.module.Sdpa(self.dnn, case.dtype, *operands, mask)
        return sdpa, lambda: {"output": _as_f32(sdpa.output)}


_ALL = (TorchSdpa, TorchFlex, TorchEager, OnnxMha, OnnxGqa, OneDnnSdpa)


def _as_f32(array: Any) -> Any:
    if array.dtype == np.uint16:
        return (array.astype(np.uint32) << 16).view(np.float32)
    return array.astype(np.float32, copy=False)


def _reason(error: BaseException) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) < 160 else text[:157] + "..."


def _read_case(request: dict[str, Any]) -> Case:
    numpy_types = {"f32": np.float32, "f16": np.float16, "bf16": np.uint16}
    arrays = {
        name: np.fromfile(tensor["file"], numpy_types[tensor["dtype"]]).reshape(tensor["shape"])
        for name, tensor in request["tensors"].items()
    }
    keys = ("score", "mask", "dtype", "shape")
    return Case(backward=request["pass"] == "backward", arrays=arrays, **{key: request[key] for key in keys})


def _limit_memory() -> None:
    """What is there now and six tenths of what is free: some rivals keep all scores, and are to fail by themselves before
    the system ends somebody. Where the system does not tell, no limit."""
    try:
        with open("/proc/meminfo") as lines:
            free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
        with open("/proc/self/statm") as line:
            used = int(line.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        resource.setrlimit(resource.RLIMIT_AS, (used + free * 6 // 10, hard))
    except (OSError, StopIteration, ValueError):
        pass


def _seconds(call: Call) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


class Server:
    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.rivals: list[Rival] = []
        self.calls: dict[str, Call] = {}

    def list_all(self, request: dict[str, Any]) -> dict[str, Any]:
        answers = []
        for kind in _ALL:
            if kind.name in request["without"]:
                answers.append({"name": kind.name, "absent": "left out"})
                continue
            try:
                rival = kind(self.threads)
            except Exception as error:  # whatever keeps a package from working
                answers.append({"name": kind.name, "absent": _reason(error)})
                continue
            self.rivals.append(rival)
            answers.append({"name": rival.name, "library": rival.library, "version": rival.version})
        return {"rivals": answers}

    def prepare(self, request: dict[str, Any]) -> dict[str, Any]:
        _limit_memory()
        case = _read_case(request)
        return {"prepared": [self._prepare(rival, case) for rival in self.rivals]}

    def _prepare(self, rival: Rival, case: Case) -> dict[str, Any]:
        answer: dict[str, Any] = {"name": rival.name}
        try:
            call, results = rival.prepare(case)
            call()
            answer["seconds"] = _seconds(call)
            answer["error"] = max(self._error(found, case.arrays[name]) for name, found in results().items())
            if not np.isfinite(answer["error"]):
                raise Refused("gives NaN")
            self.calls[rival.name] = call
        except Exception as error:  # a rival's own error is its reason
            answer = {"name": rival.name, "refused": _reason(error)}
        return answer

    @staticmethod
    def _error(found: Any, ours: Any) -> float:
        wanted = _as_f32(ours)
        return float(np.linalg.norm((found - wanted).ravel()) / max(float(np.linalg.norm(wanted.ravel())), 1e-30))

    def run(self, request: dict[str, Any]) -> dict[str, Any]:
        call, count = self.calls[request["name"]], request["count"]
        if count > 1:
            call()  # threads that slept since the last burst, caches that others filled: not timed
        return {"seconds": [_seconds(call) for _ in range(count)]}

    def drop(self, _: dict[str, Any]) -> dict[str, Any]:
        self.calls.clear()
        gc.collect()
        return {}


def _requests(lines: Any) -> Iterator[dict[str, Any]]:
    for line in lines:
        yield json.loads(line)


def main() -> int:
    # Answers go out alone: what libraries print goes to standard error.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:
        score.write("1000")
    server = Server(int(sys.argv[1]))
    doing = {"list": server.list_all, "prepare": server.prepare, "run": server.run, "drop": server.drop}
    for request in _requests(sys.stdin):
        try:
            answer: Optional[dict[str, Any]] = doing[request["do"]](request)
        except Exception as error:
            answer = {"failed": _reason(error)}
        print(json.dumps(answer), file=answers, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
