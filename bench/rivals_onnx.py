"""ONNX Runtime's attention operators, and oneDNN's graph pattern of the same."""

from __future__ import annotations

import os
import re
from typing import Any

import numpy as np

from rival_case import Call, Case, Refused, Results, Rival, as_f32


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
        # Else its threads keep a core busy behind a call, while the next way is timed.
        options.add_session_config_entry("session.force_spinning_stop", "1")
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
        query, key, value = (case.arrays[name] for name in ("query", "key", "value"))
        sdpa = self.module.Sdpa(self.dnn, case.dtype, query, key, value, mask)
        return sdpa, lambda: {"output": as_f32(sdpa.output)}
