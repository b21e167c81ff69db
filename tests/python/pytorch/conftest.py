"""Without PyTorch nothing of this folder can be imported, so that nothing is collected and the other tests run."""

import importlib.util

if importlib.util.find_spec("torch") is None:
    collect_ignore_glob = ["test_*.py"]
