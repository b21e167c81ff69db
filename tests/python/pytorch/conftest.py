"""Without PyTorch no file of this folder can be imported, so none is collected, and the other tests still run."""

import importlib.util

if importlib.util.find_spec("torch") is None:
    collect_ignore_glob = ["test_*.py"]
