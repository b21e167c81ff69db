"""Other libraries' attention beside Fovea's: `fovea bench kernels` starts `rivals.py THREADS` and speaks to it in lines of
JSON, a request and an answer each.

{"do": "list", "without": [NAME, ...]}
    {"rivals": [{"name", "library", "version"} or {"name", "absent": reason}, ...]}
{"do": "prepare", "pass", "score", "mask", "dtype", "shape", "tensors": {NAME: {"file", "dtype", "shape"}}, "without": [NAME, ...]}
    {"preparing": NAME} before each, so that it is known who ended the process if it ends
    {"prepared": [{"name", "error", "seconds"} or {"name", "refused": reason}, ...]}: how far its results are from Fovea's
    (relative Frobenius norm, the worst of output or gradients), and a first guess of its time
{"do": "run", "name", "count"}
    {"seconds": [...]}, one each
{"do": "drop"}
    {}
"""

from __future__ import annotations

import gc
import os
import resource
import sys
import time
from typing import Any, Callable

import numpy as np

from rival_case import Call, Case, Refused, Rival, as_f32
from rival_server import reason, serve
from rivals_onnx import OneDnnSdpa, OnnxGqa, OnnxMha
from rivals_torch import TorchEager, TorchFlex, TorchSdpa

_ALL = (TorchSdpa, TorchFlex, TorchEager, OnnxMha, OnnxGqa, OneDnnSdpa)


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
    def __init__(self, threads: int, tell: Callable[[dict[str, Any]], None]) -> None:
        self.threads = threads
        self.tell = tell
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
                answers.append({"name": kind.name, "absent": reason(error)})
                continue
            self.rivals.append(rival)
            answers.append({"name": rival.name, "library": rival.library, "version": rival.version})
        return {"rivals": answers}

    def prepare(self, request: dict[str, Any]) -> dict[str, Any]:
        _limit_memory()
        case = _read_case(request)
        prepared = []
        for rival in self.rivals:
            if rival.name not in request.get("without", []):
                self.tell({"preparing": rival.name})
                prepared.append(self._prepare(rival, case))
        return {"prepared": prepared}

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
            answer = {"name": rival.name, "refused": reason(error)}
        return answer

    @staticmethod
    def _error(found: Any, ours: Any) -> float:
        wanted = as_f32(ours)
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


if __name__ == "__main__":
    sys.exit(serve(lambda tell: Server(int(sys.argv[1]), tell)))
