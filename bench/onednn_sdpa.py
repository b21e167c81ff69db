"""Scaled dot-product attention of oneDNN's graph API, called through ctypes: PyPI's `onednn` has the library and no
binding. The pattern is the one that oneDNN documents as SDPA: product, scale, mask, softmax, product."""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Any, Optional, Sequence

import numpy as np

# dnnl_common_types.h and dnnl_graph_types.h
_CPU, _IN_ORDER = 1, 1
_TYPES = {"f16": 1, "bf16": 2, "f32": 3}
_STRIDED, _VARIABLE, _FUSION = 2, 0, 1
# dnnl_graph_op_kind_t: the place in the list.
_ADD, _DIVIDE, _MATMUL, _SOFTMAX = 2, 20, 39, 64
_ATTR_AXIS, _ATTR_TRANSPOSE_B, _ATTR_MODE = 0x30, 0x66, 0x84


class _Version(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_int),
        ("minor", ctypes.c_int),
        ("patch", ctypes.c_int),
        ("hash", ctypes.c_char_p),
        ("cpu_runtime", ctypes.c_uint),
        ("gpu_runtime", ctypes.c_uint),
    ]


class _Logical(ctypes.Structure):
    _fields_ = [
        ("id", ctypes.c_size_t),
        ("ndims", ctypes.c_int),
        ("dims", ctypes.c_int64 * 12),
        ("data_type", ctypes.c_int),
        ("property", ctypes.c_int),
        ("layout_type", ctypes.c_int),
        ("strides", ctypes.c_int64 * 12),
    ]


def _load() -> ctypes.CDLL:
    folder = os.path.join(sys.prefix, "lib")
    os.environ.setdefault("ONEDNN_VERBOSE", "0")
    os.environ.setdefault("OCL_ICD_FILENAMES", os.path.join(folder, "libintelocl.so"))
    # PyPI's build runs on SYCL and finds none of its libraries by itself.
    for name in ("libtbb.so.12", "libintlc.so.5", "libimf.so", "libirng.so", "libsvml.so", "libsycl.so.9"):
        if os.path.exists(os.path.join(folder, name)):
            ctypes.CDLL(os.path.join(folder, name), mode=ctypes.RTLD_GLOBAL)
    path = os.path.join(folder, "libdnnl.so.3")
    library = ctypes.CDLL(path if os.path.exists(path) else "libdnnl.so.3")
    if not hasattr(library, "dnnl_graph_graph_create"):
        raise OSError("its oneDNN has no graph API")
    return library


class OneDnn:
    """The library, with a CPU engine and a stream."""

    def __init__(self) -> None:
        self._library = _load()
        self._library.dnnl_version.restype = ctypes.POINTER(_Version)
        found = self._library.dnnl_version().contents
        self.version = f"{found.major}.{found.minor}.{found.patch}"
        self.engine, self.stream = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("dnnl_engine_create", ctypes.byref(self.engine), _CPU, ctypes.c_size_t(0))
        self.call("dnnl_stream_create", ctypes.byref(self.stream), self.engine, _IN_ORDER)

    def call(self, name: str, *arguments: Any) -> None:
        status = getattr(self._library, name)(*arguments)
        if status != 0:
            raise RuntimeError(f"{name} gives status {status}")


class _Graph:
    def __init__(self, dnn: OneDnn) -> None:
        self.dnn, self.handle, self.ids, self.ops = dnn, ctypes.c_void_p(), 0, 0
        dnn.call("dnnl_graph_graph_create", ctypes.byref(self.handle), _CPU)

    def logical(self, dtype: str, dims: Sequence[int], strides: Optional[Sequence[int]] = None) -> _Logical:
        self.ids += 1
        if strides is None:
            strides = [int(np.prod(dims[axis + 1 :])) for axis in range(len(dims))]
        made, many = _Logical(), ctypes.c_int64 * 12
        self.dnn.call(
            "dnnl_graph_logical_tensor_init_with_strides",
            ctypes.byref(made),
            ctypes.c_size_t(self.ids),
            _TYPES[dtype],
            ctypes.c_int32(len(dims)),
            many(*dims),
            many(*strides),
            _VARIABLE,
        )
        return made

    def add(self, kind: int, inputs: Sequence[_Logical], output: _Logical, **attributes: Any) -> None:
        op = ctypes.c_void_p()
        self.ops += 1
        name = f"op{self.ops}".encode()
        self.dnn.call("dnnl_graph_op_create", ctypes.byref(op), ctypes.c_size_t(self.ops), kind, name)
        for each in inputs:
            self.dnn.call("dnnl_graph_op_add_input", op, ctypes.byref(each))
        self.dnn.call("dnnl_graph_op_add_output", op, ctypes.byref(output))
        one = ctypes.c_size_t(1)
        if "transpose_b" in attributes:
            yes = ctypes.byref(ctypes.c_uint8(1))
            self.dnn.call("dnnl_graph_op_set_attr_bool", op, _ATTR_TRANSPOSE_B, yes, one)
        if "axis" in attributes:
            axis = ctypes.byref(ctypes.c_int64(attributes["axis"]))
            self.dnn.call("dnnl_graph_op_set_attr_s64", op, _ATTR_AXIS, axis, one)
        if "mode" in attributes:
            self.dnn.call("dnnl_graph_op_set_attr_str", op, _ATTR_MODE, attributes["mode"], one)
        self.dnn.call("dnnl_graph_add_op", self.handle, op)


class Sdpa:
    """One compiled attention. Operands are NumPy arrays of the dtype's bits: query [batch, heads, query_len, dim], key and
    value [batch, kv_heads, key_len, dim], mask (added to the scores, -inf hides) f32 [query_len, key_len] or None."""

    def __init__(self, dnn: OneDnn, dtype: str, query: Any, key: Any, value: Any, mask: Any) -> None:
        batch, heads, rows, dim = query.shape
        kv, keys = key.shape[1], key.shape[2]
        groups = heads // kv
        grouped = [groups] if groups > 1 else []
        shared = [1] if groups > 1 else []
        graph = _Graph(dnn)
        q = graph.logical(dtype, [batch, kv, *grouped, rows, dim])
        k = graph.logical(dtype, [batch, kv, *shared, keys, dim])
        v = graph.logical(dtype, [batch, kv, *shared, keys, dim])
        score_dims = [batch, kv, *grouped, rows, keys]
        scores, scaled, hidden = (graph.logical("f32", score_dims) for _ in range(3))
        weights = graph.logical(dtype, score_dims)
        root, output = graph.logical("f32", [1]), graph.logical(dtype, [batch, kv, *grouped, rows, dim])
        graph.add(_MATMUL, [q, k], scores, transpose_b=True)
        graph.add(_DIVIDE, [scores, root], scaled)
        added = None
        if mask is not None:
            added = graph.logical("f32", [1, 1, *shared, rows, keys])
            graph.add(_ADD, [scaled, added], hidden)
        graph.add(_SOFTMAX, [scaled if mask is None else hidden], weights, axis=-1, mode=b"inf_as_zero")
        graph.add(_MATMUL, [weights, v], output)
        dnn.call("dnnl_graph_graph_finalize", graph.handle)
        self._dnn, self._compiled = dnn, ctypes.c_void_p()
        self.output = np.zeros_like(query)
        self._root = np.array([dim**0.5], np.float32)
        arrays = {k.id: key, q.id: query, v.id: value, root.id: self._root, output.id: self.output}
        if added is not None:
            arrays[added.id] = mask
        by_id = {each.id: each for each in (q, k, v, root, output, added) if each is not None}
        self._kept = (arrays, by_id)
        self._compile(graph, by_id, output, arrays)

    def _compile(self, graph: _Graph, by_id: dict[int, _Logical], output: _Logical, arrays: dict[int, Any]) -> None:
        dnn, count = self._dnn, ctypes.c_size_t()
        dnn.call("dnnl_graph_graph_filter", graph.handle, _FUSION)
        dnn.call("dnnl_graph_graph_get_partition_num", graph.handle, ctypes.byref(count))
        if count.value != 1:
            raise RuntimeError(f"oneDNN cuts this attention into {count.value} partitions and fuses none")
        partition, inputs = ctypes.c_void_p(), ctypes.c_size_t()
        dnn.call("dnnl_graph_graph_get_partitions", graph.handle, count, ctypes.byref(partition))
        dnn.call("dnnl_graph_partition_get_input_ports_num", partition, ctypes.byref(inputs))
        ports = (_Logical * inputs.value)()
        dnn.call("dnnl_graph_partition_get_input_ports", partition, inputs, ports)
        chosen = [by_id[port.id] for port in ports]
        pointers = (ctypes.POINTER(_Logical) * inputs.value)(*[ctypes.pointer(each) for each in chosen])
        to = (ctypes.POINTER(_Logical) * 1)(ctypes.pointer(output))
        dnn.call("dnnl_graph_compiled_partition_create", ctypes.byref(self._compiled), partition)
        one = ctypes.c_size_t(1)
        dnn.call("dnnl_graph_partition_compile", partition, self._compiled, inputs, pointers, one, to, dnn.engine)
        self._inputs = (ctypes.c_void_p * inputs.value)(*[self._tensor(each, arrays[each.id]) for each in chosen])
        self._outputs = (ctypes.c_void_p * 1)(self._tensor(output, arrays[output.id]))

    def _tensor(self, logical: _Logical, array: Any) -> int:
        made = ctypes.c_void_p()
        at = ctypes.c_void_p(array.ctypes.data)
        self._dnn.call("dnnl_graph_tensor_create", ctypes.byref(made), ctypes.byref(logical), self._dnn.engine, at)
        assert made.value is not None
        return made.value

    def __call__(self) -> None:
        self._dnn.call(
            "dnnl_graph_compiled_partition_execute",
            self._compiled,
            self._dnn.stream,
            ctypes.c_size_t(len(self._inputs)),
            self._inputs,
            ctypes.c_size_t(1),
            self._outputs,
        )
        self._dnn.call("dnnl_stream_wait", self._dnn.stream)

