"""The library of the arrays decides for the call, and the package's modules import one another without cycles."""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import fovea
from fovea import _arrays, _properties, masks, mods, normalizers, rope, scores
from fovea._numpy import NumPy

PACKAGE = Path(fovea.__file__).parent
FILES = {
    ".".join(("fovea", *file.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__"): file
    for file in sorted(PACKAGE.rglob("*.py"))
}


def _imported(name: str, file: Path) -> "set[str]":
    """Modules of the package that this module imports, also inside its functions, without the packages that contain them."""
    package = name if file.stem == "__init__" else name.rpartition(".")[0]
    found = set()
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = ".".join(package.split(".")[: len(package.split(".")) - node.level + 1])
            whole = f"{base}.{node.module}" if node.module else base
            for alias in node.names:
                inner = f"{whole}.{alias.name}"
                if inner in FILES or node.module:  # but not the extension module
                    found.add(inner if inner in FILES else whole)
    return found


def test_no_cycle_of_imports() -> None:
    graph = {name: _imported(name, file) for name, file in FILES.items()}
    assert "fovea.torch._library" in graph["fovea._libraries"]
    list(TopologicalSorter(graph).static_order())


def test_one_module_knows_of_pytorch() -> None:
    """Only the table of libraries and the modules for PyTorch name it."""
    imports = {
        name: sorted(
            ast.unparse(node)
            for node in ast.walk(ast.parse(file.read_text()))
            if isinstance(node, (ast.Import, ast.ImportFrom)) and "torch" in ast.unparse(node)
        )
        for name, file in FILES.items()
        if not name.startswith(("fovea.torch", "fovea.nn", "fovea.bench"))
    }
    assert {name: found for name, found in imports.items() if found} == {
        "fovea._libraries": ["from .torch._library import LIBRARY"]
    }


def test_only_functions_of_a_library_decide_by_it() -> None:
    """What a call does with arrays is a method of `Library`, forward and backward."""
    for name in ("attend", "gradients", "rotate", "rotate_by_tables"):
        for library in (_arrays.Library, NumPy):
            assert callable(vars(library)[name]), (library, name)


def test_parts_say_their_properties() -> None:
    """The engine's declarations, not their names, decide: every part of the package has a row."""
    for text in [score()._text() for score in (scores.Dot, scores.ScaledDot)] + ["location", "coverage", "cosine"]:
        assert _properties.reads_keys(text) == (text != "location")
    texts = ["softmax", "sink", "scalable", "sigmoid(-1)", "sparsemax", "entmax(1.5)", "adaptive-entmax", "argmax", "sample", "gumbel(0.5)", "chain"]
    assert [text for text in texts if _properties.draws(text)] == ["sample", "gumbel(0.5)"]
    assert [text for text in texts if _properties.has_estimated_gradient(text)] == ["sample"]
    assert [text for text in texts if _properties.has_constant_weights(text)] == ["argmax"]
    assert [text for text in texts if _properties.has_log_sum_exp(text)] == ["softmax", "sink"]
    assert _properties.needs_whole_rows("coverage", []) == "score coverage"
    assert _properties.needs_whole_rows("dot", ["alibi", "relative-key(3)"]) == "mod relative-key(3)"
    assert _properties.needs_whole_rows("dot", ["alibi", "relative(8,20,causal)"]) is None


def test_each_module_says_what_is_public() -> None:
    for module in (masks, mods, normalizers, rope, scores):
        assert set(module.__all__) <= set(fovea.__all__)
        for name in module.__all__:
            assert getattr(fovea, name) is getattr(module, name)


class Wrapped:
    """An array of an unknown library."""

    def __init__(self, array: Any) -> None:
        self.array, self.shape, self.dtype = array, array.shape, array.dtype


class WrappedLibrary(NumPy):
    arrays = (Wrapped,)
    noun, conversion, follows = "a wrapped array", "Wrapped makes one of the query", True

    def attend(self, call: Any, query: Any, key: Any, value: Any, ask: Any, seed: Any, out: Any) -> Any:
        return Wrapped(super().attend(call, query.array, key.array, value.array, ask, seed, out))


@pytest.fixture
def wrapped(monkeypatch: Any) -> None:
    monkeypatch.setattr(_arrays, "_of_type", {})
    monkeypatch.setitem(_arrays._OWNERS, Wrapped.__module__.partition(".")[0], WrappedLibrary)


def test_a_further_library_is_a_row(wrapped: None, rng: Any) -> None:
    q, k, v = (rng.standard_normal((1, 2, 5, 4)) for _ in range(3))
    expected = fovea.attention(q, k, v, mask=fovea.Causal())

    class Narrow(Wrapped):
        pass

    for kind in (Wrapped, Narrow):
        found = fovea.attention(*map(kind, (q, k, v)), mask=fovea.Causal())
        assert type(found) is Wrapped and np.array_equal(found.array, expected)
    with pytest.raises(fovea.InvalidArgument, match="Wrapped makes one of the query.*a wrapped array"):
        fovea.attention(q, Wrapped(k), v)


def test_other_arrays_use_numpy(wrapped: None) -> None:
    class Elsewhere:  # in the package of the table's row, but not an array
        pass

    for x in (np.ones(3), [1, 2], None, 3, Elsewhere(), SimpleNamespace(shape=(1,))):
        assert _arrays.library_of(x) is _arrays.others()
