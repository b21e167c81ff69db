"""An object that lives in a process of its own.

libgomp counts the threads that it has started in a process, for every caller and every library that shares it. With more of them than
processors, those that wait sleep almost at once in place of spinning for 3 ms. A generator of CTranslate2 with two threads, on two
cores, then took many times as long behind a second one, or behind PyTorch in the same process, as alone.

Not all rivals need it. PyTorch and Fovea's package share one team of OpenMP (patched.py, cache.py, recurrences.py). ONNX Runtime's
threads there are its own, which libgomp does not count. CTranslate2's batches of translate.py run side by side on its own threads, each with a team of one.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import signal
from multiprocessing.connection import Connection
from typing import Any, Callable

from rival_server import reason


PR_SET_PDEATHSIG = 1  # of Linux's prctl


def _serve(requests: Connection, make: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    # A signal that ends the process that asked must end a long call too: the end of the pipe is seen behind it.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    made: Any = None
    method, given = "", arguments
    while True:
        try:
            result = getattr(made, method)(*given) if method else None
            if not method:
                made = make(*given)
            requests.send((result, ""))
        except Exception as error:
            requests.send((None, reason(error)))
        try:
            method, given = requests.recv()
        except EOFError:  # the process that asked has ended
            return


class Apart:
    """`make(*arguments)`, which must be picklable, in a new process. Throws RuntimeError with what it throws."""

    def __init__(self, make: Callable[..., Any], *arguments: Any) -> None:
        spawning = multiprocessing.get_context("spawn")  # a copy of this process would have its libraries' threads
        self.requests, theirs = spawning.Pipe()
        self.process = spawning.Process(target=_serve, args=(theirs, make, arguments), daemon=True)
        self.process.start()
        theirs.close()
        self._answer()

    def call(self, method: str, *arguments: Any) -> Any:
        try:
            self.requests.send((method, arguments))
        except OSError:
            pass  # the answer says that it has ended
        return self._answer()

    def close(self) -> None:
        self.requests.close()
        self.process.join()

    def _answer(self) -> Any:
        try:
            result, failed = self.requests.recv()
        except (EOFError, OSError):
            raise RuntimeError("its process ended, for want of memory or by its own fault") from None
        if failed:
            raise RuntimeError(failed)
        return result
