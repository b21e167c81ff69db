"""Plans can be copied and pickled, with the same bits in this and in another process."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
from typing import Any

import numpy as np
import pytest
from test_errors import run_alone

import fovea


def near(b: Any, h: Any, i: Any, j: Any) -> Any:
    return abs(i - j) <= 3


class Near:
    """An object whose method is a mask, and which holds that mask."""

    def __init__(self) -> None:
        self.mask = fovea.Predicate(self.sees)

    def sees(self, b: Any, h: Any, i: Any, j: Any) -> Any:
        return abs(i - j) <= 2


SIZES: dict[str, Any] = dict(num_query_heads=2, query_len=8, head_dim=16)
SLOPES = np.array([0.5, 0.25], np.float32)
SPECS: dict[str, dict[str, Any]] = {
    "plain": {},
    "forced": dict(kernel="reference", dtype="f64"),
    "parameters": dict(mods=[fovea.AlibiBias(SLOPES)], mask=fovea.Causal() & fovea.SlidingWindow(4)),
    "additive": dict(score=fovea.Additive(None, None, np.ones(16, np.float32)), normalizer=fovea.Sparsemax()),
    "lengths": dict(mask=fovea.KeyLengths([5])),
    "function": dict(mask=fovea.Causal() & fovea.Predicate(near)),
    "bare function": dict(mask=near),
    "method": dict(mask=Near().mask),
    "array": dict(mask=fovea.ArrayMask(np.tri(8, dtype=bool)) | fovea.StreamingSinks(1)),
    "dropout": dict(dropout=0.25, precision="medium", query_offset=3, scale=0.3),
}


def called(plan: Any) -> list[Any]:
    rng = np.random.default_rng(3)
    q, k, v = (rng.standard_normal((1, 2, 8, 16)).astype("f8" if plan.dtype == "f64" else "f4") for _ in range(3))
    return list(plan(q, k, v, seed=7, return_lse=True, return_weights=True))


def same(a: list[Any], b: list[Any]) -> bool:
    return len(a) == len(b) and all(np.array_equal(x, y) for x, y in zip(a, b))


@pytest.mark.parametrize("name", list(SPECS))
def test_copies(name: str) -> None:
    plan = fovea.plan(**SIZES, **SPECS[name])
    for other in (pickle.loads(pickle.dumps(plan)), copy.copy(plan), copy.deepcopy(plan), copy.deepcopy(pickle.loads(pickle.dumps(plan)))):
        assert same(called(other), called(plan))
        assert (other.kernel, other.dtype, other.explain()) == (plan.kernel, plan.dtype, plan.explain())


def test_a_deep_copy_has_arrays_of_its_own() -> None:
    slopes = SLOPES.copy()
    plan = fovea.plan(**SIZES, mods=[fovea.AlibiBias(slopes)])
    deep, shallow, before = copy.deepcopy(plan), copy.copy(plan), called(plan)
    slopes *= 2
    assert same(called(deep), before) and not same(called(shallow), before)


# A pipe instead of a queue, here and in test_plan.py: a queue has semaphores, which need a writable /dev/shm.
def _child(plans: Any, sender: Any) -> None:
    sender.send([called(plan) for plan in plans])


def test_to_a_spawned_process() -> None:
    plans = [fovea.plan(**SIZES, **spec) for spec in SPECS.values()]
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    child = context.Process(target=_child, args=(plans, sender))
    child.start()
    assert receiver.poll(60)
    results = receiver.recv()
    child.join(10)
    assert child.exitcode == 0
    for plan, result in zip(plans, results):
        assert same(called(plan), result), plan


def test_texts_are_hashed_again_in_another_process() -> None:
    """Plans are looked up by hashes of texts, which differ from process to process."""
    plan = fovea.plan(**SIZES, mask=fovea.Causal())
    hash(plan._key)
    said = run_alone(
        "import pickle, fovea\n"
        f"plan = pickle.loads({pickle.dumps(plan)!r})\n"
        "fresh = fovea.plan(num_query_heads=2, query_len=8, head_dim=16, mask=fovea.Causal())\n"
        "print(hash(plan._key) == hash(fresh._key), plan._key == fresh._key)\n"
    )
    assert said == "True True\n"


def test_functions_that_do_not_pickle() -> None:
    plan = fovea.plan(**SIZES, mask=fovea.Causal() & fovea.Predicate(lambda b, h, i, j: i >= j))
    with pytest.raises(fovea.InvalidArgument, match="Predicate: visible: expected a function that pickles.*lambda"):
        pickle.dumps(plan)
    assert same(called(copy.deepcopy(plan)), called(plan))


class _ByValue(pickle.Pickler):
    """Stands for cloudpickle: writes functions in its own way."""

    def reducer_override(self, x: Any) -> Any:
        return (eval, ("lambda b, h, i, j: i >= j",)) if getattr(x, "__name__", "") == "<lambda>" else NotImplemented

    def dump(self, x: Any) -> None:
        super().dump(x)


def test_a_pickler_that_writes_functions() -> None:
    import io

    plan = fovea.plan(**SIZES, mask=fovea.Predicate(lambda b, h, i, j: i >= j))
    file = io.BytesIO()
    _ByValue(file).dump(plan)
    assert same(called(pickle.loads(file.getvalue())), called(plan))
