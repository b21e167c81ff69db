"""The package passes `mypy --strict`, and its annotations reveal wrong uses in other code."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import fovea

pytest.importorskip("mypy")
PACKAGE = Path(fovea.__file__).parent

RIGHT = """
import numpy as np
import fovea
mask: fovea.Mask = fovea.Causal() & (fovea.SlidingWindow(127) | ~fovea.Documents([0, 4]))
mods: list[fovea.Mod] = [fovea.SoftCap(50), fovea.AlibiBias([0.5]), fovea.RelativeBias([[0.0] * 32], direction="causal")]
score: fovea.Score = fovea.Additive(None, None, [1.0])
normalizer: fovea.Normalizer = fovea.Entmax(alpha=1.25)
step: fovea.Plan = fovea.plan(query_len=1, key_len=8, head_dim=4, mask=mask, mods=mods)
kernel: str = step.kernel
said: str = fovea.explain(None, None, None)
numbers: list[fovea.Mask] = [f(np.array([0, 4])) for f in (fovea.KeyLengths, fovea.Prefix, fovea.Documents, fovea.Tree, fovea.Groups)]
layers: list[fovea.LayerOfCache] = list(fovea.KvCache([fovea.CacheLayer(2, 8)]))
"""
WRONG = [
    "fovea.SoftCap('50')",
    "fovea.SoftCap()",
    "fovea.SoftCap(50, 3)",
    "fovea.SlidingWindow(lookbehind=3)",
    "fovea.SlidingWindow(1.5)",
    "fovea.Documents('ab')",
    "fovea.KeyLengths(3)",
    "fovea.Causal() & 3",
    "fovea.SoftCap(50).cap = 3",
    "fovea.attention(1, 2, 3, maks=None)",
    "fovea.attention(1, 2)",
    "fovea.plan(query_len='1', head_dim=3)",
    "fovea.set_num_threads('2')",
]


def _mypy(alone: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """The package alone in a folder: in site-packages mypy would check its neighbours as the user's own code."""
    alone.mkdir(exist_ok=True)
    if not (alone / "fovea").exists():
        (alone / "fovea").symlink_to(PACKAGE)
    return subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--ignore-missing-imports", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "MYPYPATH": str(alone)},
    )


def test_the_package_is_typed(tmp_path: Path) -> None:
    # All modules except those with PyTorch's own types, which are not strict.
    alone = tmp_path / "alone"
    files = sorted(str(alone / "fovea" / file.name) for file in PACKAGE.glob("*.py") if file.name != "nn.py")
    done = _mypy(alone, "--cache-dir", str(tmp_path), *files, str(alone / "fovea" / "_core.pyi"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert (PACKAGE / "py.typed").exists()


def test_wrong_uses_are_reported(tmp_path: Path) -> None:
    code = tmp_path / "user.py"
    code.write_text(RIGHT)
    done = _mypy(tmp_path / "alone", "--cache-dir", str(tmp_path), str(code))
    assert done.returncode == 0, done.stdout + done.stderr
    code.write_text("import fovea\n" + "\n".join(WRONG) + "\n")
    said = _mypy(tmp_path / "alone", "--cache-dir", str(tmp_path), str(code)).stdout
    lines = {int(line.split(":")[1]) for line in said.splitlines() if ": error:" in line}
    missed = [WRONG[n - 2] for n in range(2, len(WRONG) + 2) if n not in lines]
    assert not missed, said


def test_the_stub_has_the_names_of_the_module() -> None:
    """Every name of the stub is in the module, and every name of the module is in the stub."""
    import ast

    from fovea import _core

    tree = ast.parse((PACKAGE / "_core.pyi").read_text())
    named = {node.name: node for node in tree.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))}
    assert set(named) == {name for name in dir(_core) if not name.startswith("_")}
    for name, node in named.items():
        if isinstance(node, ast.ClassDef):
            methods = {f.name for f in node.body if isinstance(f, ast.FunctionDef) and not f.name.startswith("__")}
            assert methods == {m for m in dir(getattr(_core, name)) if not m.startswith("_")}
