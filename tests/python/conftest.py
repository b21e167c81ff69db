"""What all tests of the Python package share. They need NumPy and pytest, and use ml_dtypes, onnx and mypy if installed."""

from __future__ import annotations

import sys

import numpy as np
import pytest

# Where fla is installed, transformers calls its Triton kernels without asking whether there is a GPU.
sys.modules["fla"] = None


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


@pytest.fixture(autouse=True)
def threads():
    """Restores the number of threads after each test."""
    import fovea

    before = fovea.get_num_threads()
    yield
    if fovea.get_num_threads() != before:
        fovea.set_num_threads(before)
