"""The loop of a process of rivals, which `fovea bench` starts: a request a line on standard input, an answer a line on standard
output, both JSON. What a request may be stands in the script that serves it."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from typing import Any, Callable, Optional, Protocol


class Serving(Protocol):
    def list_all(self, request: dict[str, Any]) -> dict[str, Any]: ...
    def prepare(self, request: dict[str, Any]) -> dict[str, Any]: ...
    def run(self, request: dict[str, Any]) -> dict[str, Any]: ...
    def drop(self, request: dict[str, Any]) -> dict[str, Any]: ...


def reason(error: BaseException) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) < 160 else text[:157] + "..."


def seconds_of(run: Callable[[], object], count: int) -> list[float]:
    seconds = []
    for _ in range(count):
        begin = time.perf_counter()
        run()
        seconds.append(time.perf_counter() - begin)
    return seconds


def serve(make: Callable[[Callable[[dict[str, Any]], None]], Serving]) -> int:
    """`make` gets a function that tells something before the answer, such as {"preparing": NAME}."""
    # Answers go out alone: what libraries print goes to standard error.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:
        score.write("1000")

    def tell(answer: Optional[dict[str, Any]]) -> None:
        print(json.dumps(answer), file=answers, flush=True)

    server = make(tell)
    doing = {"list": server.list_all, "prepare": server.prepare, "run": server.run, "drop": server.drop}
    for line in sys.stdin:
        request = json.loads(line)
        try:
            answer: Optional[dict[str, Any]] = doing[request["do"]](request)
        except Exception as error:
            answer = {"failed": reason(error)}
        tell(answer)
    return 0
