"""The number of threads that share a call."""

from __future__ import annotations

from . import _core
from ._errors import InvalidArgument
from ._value import integer

__all__ = ["set_num_threads", "get_num_threads"]

_MOST_THREADS = 4096


def set_num_threads(threads: int) -> None:
    """Sets how many threads, the caller's included, share each later call, on all threads of Python. Results are the
    same bits for every number.

    Args:
        threads: at least 1.

    >>> fovea.set_num_threads(2)
    >>> fovea.get_num_threads()
    2
    """
    n = int(integer(threads, "set_num_threads.threads"))
    if not 1 <= n <= _MOST_THREADS:
        raise InvalidArgument("set_num_threads", "threads", f"a number in [1, {_MOST_THREADS}]", str(n))
    _core.set_num_threads(n)


def get_num_threads() -> int:
    """How many threads share a call: the number that `set_num_threads` set, else as many as the process may use.

    >>> fovea.get_num_threads() >= 1
    True
    """
    return _core.get_num_threads()
