"""What all tests of the Python package share. They need NumPy and pytest; ml_dtypes, onnx and mypy where they are."""

from __future__ import annotations

import numpy as np
import pytest


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(7)


@pytest.fixture(autouse=True)
def threads():
    """A test that sets the number of threads leaves no trace."""
    import fovea

    before = fovea.get_num_threads()
    yield
    if fovea.get_num_threads() != before:
        fovea.set_num_threads(before)
