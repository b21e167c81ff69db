"""No argument may crash the process: each mistake is an exception that names the wrong argument."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import error_table
import numpy as np
import pytest
from error_table import Q

import fovea

NATIVE = ("std::", "nanobind", "incompatible function", "bad_cast", "parse_", "expression, column")


@pytest.mark.parametrize("row", error_table.ROWS, ids=lambda row: row[0])
def test_is_refused(row: Any) -> None:
    _, run, says = row
    with pytest.raises(fovea.InvalidArgument) as caught:
        run()
    error = caught.value
    assert all(isinstance(x, str) and x for x in (error.function, error.argument, error.expected, error.got))
    assert says in str(error), str(error)
    assert not any(word in str(error) for word in NATIVE), str(error)
    assert len(str(error)) < 400


LONG = "x" * 100_000


def test_a_long_value_is_not_repeated() -> None:
    error = fovea.InvalidArgument("attention", "mask", "a mask", LONG)
    assert str(error) == f"attention: mask: expected a mask, got {LONG[:60]}… (100,000 characters)"
    assert error.got == LONG
    shapes = "[1, 2, 3, 4] " * 20
    assert shapes in str(fovea.InvalidArgument("attention", "mask", "a mask", shapes))


@pytest.mark.parametrize("options", [{name: LONG} for name in ("precision", "mask", "score", "seed", "out")])
def test_a_long_argument_is_not_repeated(options: Any) -> None:
    with pytest.raises(fovea.InvalidArgument) as caught:
        fovea.attention(Q, Q, Q, **options)
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize("row", error_table.SIGNATURES, ids=lambda row: row[0])
def test_signatures(row: Any) -> None:
    with pytest.raises(TypeError) as caught:
        row[1]()
    assert not any(word in str(caught.value) for word in NATIVE)


@pytest.mark.parametrize("row", error_table.WORKS, ids=lambda row: row[0])
def test_works(row: Any) -> None:
    assert np.isfinite(row[1]()).all()


def test_memory_map(tmp_path: Path) -> None:
    np.save(tmp_path / "q.npy", Q)
    mapped = np.load(tmp_path / "q.npy", mmap_mode="r")
    assert np.array_equal(fovea.attention(mapped, mapped, mapped), fovea.attention(Q, Q, Q))


def run_alone(code: str, seconds: int = 100) -> str:
    """Runs in a process of its own, which must end normally."""
    here = Path(__file__).parent
    path = os.pathsep.join([str(here), str(Path(fovea.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", code],
        env={**os.environ, "PYTHONPATH": path},
        cwd=here,
        capture_output=True,
        text=True,
        timeout=seconds,
    )
    assert done.returncode == 0, f"{done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    assert "leaked" not in done.stderr, done.stderr[-2000:]
    return done.stdout


def test_the_process_survives_all_of_it() -> None:
    """Each row twice, then a call that must still be right."""
    said = run_alone(
        "import error_table as t, fovea, numpy as np\n"
        "before = fovea.attention(t.Q, t.Q, t.Q)\n"
        "for name, run, _ in t.ROWS + t.ROWS:\n"
        "    try: run()\n"
        "    except fovea.InvalidArgument: pass\n"
        "    else: raise SystemExit(name)\n"
        "for name, run in t.SIGNATURES:\n"
        "    try: run()\n"
        "    except TypeError: pass\n"
        "assert np.array_equal(fovea.attention(t.Q, t.Q, t.Q), before)\n"
        "print('survived', len(t.ROWS))\n"
    )
    assert said == f"survived {len(error_table.ROWS)}\n"


def _held(run: Any, rounds: int) -> int:
    """Bytes that are still allocated after calls."""
    for _ in range(20):
        run()
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(rounds):
        run()
    gc.collect()
    held = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    return held


def test_no_call_holds_on_to_its_arrays() -> None:
    q = np.ones((1, 2, 64, 64), np.float32)
    mods = [fovea.AlibiBias(np.ones(2, np.float32))]
    counts = [sys.getrefcount(x) for x in (q, mods[0].slopes)]
    assert _held(lambda: fovea.attention(q, q, q, mods=mods, return_lse=True), 200) < q.nbytes
    assert _held(lambda: fovea.gradients(q, q, q, q, mods=mods), 200) < q.nbytes
    assert _held(lambda: fovea.attention(q, q, q, mask=np.ones((64, 64), bool)), 200) < q.nbytes
    assert [sys.getrefcount(x) for x in (q, mods[0].slopes)] == counts


def test_no_error_holds_on_to_its_arrays() -> None:
    q, wrong = np.ones((1, 2, 64, 64), np.float32), np.ones((1, 2, 63, 64), np.float32)
    counts = [sys.getrefcount(x) for x in (q, wrong)]

    def refused() -> None:
        for run in (
            lambda: fovea.attention(q, q, wrong),
            lambda: fovea.attention(q, wrong.astype("i4"), wrong),
            lambda: fovea.attention(q, q, q, out=wrong),
            lambda: fovea.attention(q, q, q, mods=[fovea.AlibiBias(wrong)]),
        ):
            with pytest.raises(fovea.InvalidArgument):
                run()

    assert _held(refused, 50) < q.nbytes
    gc.collect()
    assert [sys.getrefcount(x) for x in (q, wrong)] == counts


def test_fuzz() -> None:
    assert "calls" in run_alone("import fuzz; fuzz.main(seed=1, seconds=4)")


def test_the_fuzz_meets_every_value() -> None:
    import fuzz

    exported = {name for module in (fovea.scores, fovea.mods, fovea.normalizers, fovea.masks) for name in module.__all__}
    functions = {name for name in exported if not isinstance(getattr(fovea, name), type)}
    bases = {"Score", "Mod", "Normalizer", "Mask"}
    assert {value.__name__ for value in fuzz.VALUES} == exported - functions - bases
