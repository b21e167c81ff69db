"""Examples run: those of docstrings, every block of docs/python.md and docs/ported-layer.md, and those of both READMEs."""

from __future__ import annotations

import contextlib
import doctest
import importlib
import importlib.util
import inspect
import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fovea

DOCS = Path(__file__).parents[2] / "docs"
TUTORIAL = DOCS / "python.md"
# In English and Chinese, with the same blocks. The output of a block follows it as ```text.
PORTED = (DOCS / "ported-layer.md", DOCS / "zh" / "ported-layer.md")
HAS_TORCH = importlib.util.find_spec("torch") is not None and importlib.util.find_spec("fovea.nn") is not None
HAS = {
    "python": True,
    "python torch": HAS_TORCH,
    "python transformers": HAS_TORCH and importlib.util.find_spec("transformers") is not None,
}


def _globals() -> dict[str, Any]:
    q, k, v = (np.random.default_rng(n).standard_normal((1, 2, 4, 8)).astype("f4") for n in range(3))
    return {"fovea": fovea, "q": q, "k": k, "v": v}


PUBLIC = [name for name in fovea.__all__ if not inspect.ismodule(getattr(fovea, name))]
# Names that other functions return, or base classes of a whole family.
BASES = {"Mask", "Mod", "Normalizer", "Score", "InvalidArgument", "Plan", "CacheFull", "FileError"}
BASES |= {"Decay", "FeatureMap", "Read", "StateNormalizer", "Write"}
BASES |= {"CacheBytes", "LayerOfCache", "Sequence", "SequenceBytes"}
MODULES = sorted({getattr(fovea, name).__module__ for name in PUBLIC if name not in BASES})


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings(name: str) -> None:
    module = importlib.import_module(name)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    for test in doctest.DocTestFinder(exclude_empty=True).find(module, name, extraglobs=_globals()):
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            runner.run(test, out=said.write)
        assert not runner.failures, said.getvalue()
    assert runner.tries >= 1


@pytest.mark.parametrize("name", PUBLIC)
def test_everything_public_has_an_example(name: str) -> None:
    doc = inspect.getdoc(getattr(fovea, name))
    assert doc and len(doc) >= 20
    assert not doc.startswith(f"{name}("), "a dataclass's own text"
    assert name in BASES or ">>>" in doc, f"{name} has no example"


def _blocks(page: Path = TUTORIAL, kind: str = "python[^\n]*") -> list[tuple[int, str, str]]:
    """(line, the words after ```, code)"""
    text = page.read_text()
    found = re.finditer(rf"^```({kind})\n(.*?)^```$", text, re.M | re.S)
    return [(text[: m.start()].count("\n") + 2, m.group(1), m.group(2)) for m in found]


def test_the_tutorial_names_every_part() -> None:
    """Its table of parts has every score, mod and normaliser."""
    rows = {line.split("|")[1].strip(): line for line in TUTORIAL.read_text().splitlines() if line.startswith("| ")}
    parts = {"score": fovea.scores, "mods": fovea.mods, "normaliser": fovea.normalizers}
    for row, module in parts.items():
        names = {name for name in module.__all__ if name[0].isupper()} - BASES
        missing = {name for name in names if f"`{name}(" not in rows[row] and f"`{name}(" not in rows["weight mods"]}
        assert not missing, (row, missing)


def test_the_tutorial_names_every_part_of_recurrences() -> None:
    text = TUTORIAL.read_text()
    missing = {name for name in fovea.recurrences.__all__ if name not in BASES and f"`{name}(" not in text}
    assert not missing


def test_the_tutorial_runs() -> None:
    """From top to bottom, as a reader would; blocks that need PyTorch or transformers only if those are installed."""
    shared: dict[str, Any] = {}
    ran = 0
    for line, kind, code in _blocks():
        assert kind in HAS, f"line {line}"
        if not HAS[kind]:
            continue
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile("\n" * (line - 1) + code, str(TUTORIAL), "exec"), shared)
        ran += 1
    assert ran >= 12


@pytest.mark.skipif(not HAS_TORCH, reason="its blocks need PyTorch")
@pytest.mark.parametrize("page", PORTED, ids=lambda page: str(page.relative_to(DOCS)))
def test_the_ported_layer_prints_what_its_page_says(page: Path) -> None:
    """From top to bottom. Figures are printed to few digits, so that they are the same on every machine."""
    shared: dict[str, Any] = {}
    blocks = _blocks(page, "[^\n]*")
    for (line, kind, code), (_, next_kind, expected) in zip(blocks, [*blocks[1:], (0, "", "")]):
        if kind != "python torch":
            assert kind in ("text", "sh"), f"line {line}"
            continue
        with contextlib.redirect_stdout(io.StringIO()) as said:
            exec(compile("\n" * (line - 1) + code, str(page), "exec"), shared)
        assert said.getvalue() == (expected if next_kind == "text" else ""), f"line {line}"


def test_the_ported_layer_has_the_same_blocks_in_both_languages() -> None:
    english, chinese = ([block[1:] for block in _blocks(page, "[^\n]*")] for page in PORTED)
    assert english == chinese and len(english) > 10
    tables = [re.findall(r"^\|.*\d MiB.*\|$", page.read_text(), re.M) for page in PORTED]
    assert tables[0] == tables[1] and len(tables[0]) == 3


@pytest.mark.parametrize("name", ["README.md", "README.zh.md"])
def test_the_blocks_of_the_readme_run(name: str) -> None:
    """Each alone, as a reader copies it. The first makes one call, whose output has the shape of its query."""
    page = DOCS.parent / name
    found = [(line, code) for line, kind, code in _blocks(page, "[^\n]*") if kind == "python"]
    assert found
    for line, code in found:
        names: dict[str, Any] = {}
        exec(compile("\n" * (line - 1) + code, str(page), "exec"), names)
        assert names["out"].shape == names["q"].shape == (1, 8, 512, 64)


def test_the_tutorial_shows_what_is_printed() -> None:
    """The error under "Errors": the text of explain depends on the machine, errors do not."""
    with pytest.raises(fovea.InvalidArgument) as caught:
        q = np.ones((1, 8, 512, 64), np.float32)
        fovea.attention(q, q[..., :32], q)
    assert f"    {caught.value}\n" in TUTORIAL.read_text()


def test_the_tutorial_names_existing_values() -> None:
    named = set(re.findall(r"`(?:fovea\.)?([A-Z]\w+)\(", TUTORIAL.read_text()))
    assert len(named) > 30 and all(hasattr(fovea, name) for name in named), named
    linked = re.findall(r"\]\(#([^)]+)\)", TUTORIAL.read_text())
    headings = {
        re.sub(r"[^\w\- ]", "", line.lstrip("# ").lower()).replace(" ", "-")
        for line in TUTORIAL.read_text().splitlines()
        if line.startswith("#")
    }
    assert set(linked) <= headings


@pytest.mark.parametrize("name", ["README.md", "README.zh.md"])
def test_the_explanation_in_the_readme_is_that_of_its_call(name: str) -> None:
    page = (DOCS.parent / name).read_text()
    shown = next(block for block in re.findall(r"^```\n(.*?)^```$", page, re.M | re.S) if "scaled-dot" in block)
    q, k, v = (np.zeros((1, 8, 512, 64), "f4") for _ in range(3))
    said = fovea.explain(q, k, v, mask=fovea.Causal() & fovea.SlidingWindow(127), mods=[fovea.SoftCap(50)])
    if said.startswith("avx512 "):
        assert said.strip() == shown.strip()
    # Other instruction sets have other kernels and other tiles.
    lines = [line for line in shown.splitlines() if "avx" not in line and "tiles" not in line]
    assert len(lines) == 2 and all(line in said.splitlines() for line in lines), said
