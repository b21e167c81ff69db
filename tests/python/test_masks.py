"""Masks by array, by function and by name give the same results."""

from __future__ import annotations

import gc
import threading
import weakref
from typing import Any

import cases
import numpy as np
import oracle
import pytest
from cases import Sizes

import fovea
from fovea import _mask, _predicate

NAMED = [name for name in cases.MASKS if name not in ("none", "predicate", "array", "array of 2 axes", "array within")]


def visible(mask: Any, sizes: Sizes, offset: int) -> Any:
    shape = (sizes.batch, sizes.heads, sizes.rows, sizes.columns)
    return np.array(
        [oracle.visible(mask, b, h, r, r + offset, j) for b, h, r, j in np.ndindex(shape)], bool
    ).reshape(shape)


@pytest.mark.parametrize("name", NAMED)
def test_array_additive_and_predicate_equal_the_named_mask(rng: Any, name: str) -> None:
    sizes = Sizes(rows=6, columns=9)
    mask = cases.MASKS[name](rng, sizes)
    q, k, v = cases.arrays(rng, sizes, np.float64)
    for offset in (None, 1):
        truth = visible(mask, sizes, 3 if offset is None else offset)[:, :1]
        wanted = fovea.attention(q, k, v, mask=mask, query_offset=offset)
        assert np.array_equal(fovea.attention(q, k, v, mask=truth, query_offset=offset), wanted)
        added = fovea.attention(q, k, v, mask=np.where(truth, 0.0, -np.inf), query_offset=offset)
        assert np.allclose(added, wanted, atol=1e-14)
        said = fovea.attention(
            q, k, v, query_offset=offset, mask=lambda b, h, i, j, o=offset: truth[b, 0, i - (3 if o is None else o), j]
        )
        assert np.array_equal(said, wanted)


SHAPES = [(7,), (5, 7), (1, 7), (5, 1), (1, 1, 5, 7), (2, 1, 1, 7), (2, 1, 5, 7), (1, 1, 1, 1), ()]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_arrays_broadcast(rng: Any, shape: Any) -> None:
    q, k, v = cases.arrays(rng, Sizes(), np.float64)
    truth = np.asarray(rng.random(shape) < 0.6)
    whole = np.broadcast_to(truth, (2, 4, 5, 7))
    for array in (truth, np.asfortranarray(truth), truth[::-1][::-1] if truth.ndim else truth):
        wanted = oracle.attention(q, k, v, mask=fovea.ArrayMask(whole))[0]
        assert np.allclose(fovea.attention(q, k, v, mask=array), wanted, atol=1e-13)
    numbers = rng.standard_normal(shape)
    wanted = oracle.attention(q, k, v, mods=[fovea.DenseBias(np.broadcast_to(numbers, (2, 4, 5, 7)))])[0]
    assert np.allclose(fovea.attention(q, k, v, mask=np.asarray(numbers)), wanted, atol=1e-13)


@pytest.mark.parametrize("shape", [(4, 5, 7), (2, 4, 5, 7), (4, 1, 7)], ids=str)
def test_arrays_with_heads(rng: Any, shape: Any) -> None:
    q, k, v = cases.arrays(rng, Sizes(), np.float64)
    truth = rng.random(shape) < 0.6
    wanted = oracle.attention(q, k, v, mask=fovea.ArrayMask(np.broadcast_to(truth, (2, 4, 5, 7))))[0]
    assert np.allclose(fovea.attention(q, k, v, mask=truth), wanted, atol=1e-13)
    four = np.broadcast_to(truth, (2, 4, 5, 7))
    said = fovea.attention(q, k, v, mask=lambda b, h, i, j: four[b, h, i - 2, j])
    assert np.allclose(said, wanted, atol=1e-13)


class Counted:
    """A predicate that records the shapes of its calls."""

    def __init__(self, says: Any) -> None:
        self.says, self.asked = says, []

    def __call__(self, b: Any, h: Any, i: Any, j: Any) -> Any:
        self.asked.append(np.broadcast_shapes(b.shape, h.shape, i.shape, j.shape))
        assert all(x.ndim == 4 and x.dtype.kind == "i" for x in (b, h, i, j))
        return self.says(b, h, i, j)


def test_a_predicate_is_asked_once_for_each_size(rng: Any) -> None:
    counted = Counted(lambda b, h, i, j: j <= i)
    mask = fovea.Predicate(counted)
    q, k, v = cases.arrays(rng, Sizes(), np.float32)
    wanted = fovea.attention(q, k, v, mask=fovea.Causal())
    for _ in range(3):
        assert np.array_equal(fovea.attention(q, k, v, mask=mask), wanted)
        fovea.attention(q, k, v, mask=mask & fovea.SlidingWindow(2))
        fovea.gradients(q, k, v, np.ones((2, 4, 5, 3), np.float32), mask=mask)
    # The first call is for one row. It shows that the answer depends neither on batch entries nor on heads.
    assert counted.asked == [(2, 2, 1, 7), (1, 1, 5, 7)]
    fovea.attention(q[:, :, :3], k, v, mask=mask)
    assert len(counted.asked) == 4
    fovea.attention(q, k, v, mask=mask, query_offset=0)
    assert len(counted.asked) == 6
    fovea.attention(q, k, v, mask=mask)
    assert len(counted.asked) == 6


def test_a_predicate_is_asked_in_blocks(rng: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(_predicate, "_MOST_SITES", 16)
    q, k, v = cases.arrays(rng, Sizes(), np.float64)
    counted = Counted(lambda b, h, i, j: (i + j + b) % 3 != 0)
    got = fovea.attention(q, k, v, mask=fovea.Predicate(counted))
    assert np.allclose(got, oracle.attention(q, k, v, mask=fovea.Predicate(counted.says))[0], atol=1e-13)
    assert counted.asked[0] == (2, 2, 1, 7)
    assert counted.asked[1:] == [(1, 1, 2, 7), (1, 1, 2, 7), (1, 1, 1, 7)] * 2


def test_a_checkerboard_is_stored_as_bits(rng: Any) -> None:
    """A row has 512 runs of keys instead of one; the results are those of the array."""
    q, k, v = (rng.standard_normal((1, 2, n, 8)).astype("f4") for n in (70, 1024, 1024))
    i, j = np.arange(1024 - 70, 1024)[:, None], np.arange(1024)[None]
    for says in (lambda b, h, i, j: (i ^ j) % 2 == 0, lambda b, h, i, j: (j % 3 == 0) | (j < i - 500)):
        wanted = oracle.attention(q, k, v, mask=fovea.ArrayMask(says(0, 0, i, j)))[0]
        assert np.allclose(fovea.attention(q, k, v, mask=says), wanted, atol=1e-5)
        both = fovea.Causal() & ~fovea.Predicate(says)
        wanted = oracle.attention(q, k, v, mask=fovea.ArrayMask((j <= i) & ~says(0, 0, i, j)))[0]
        assert np.allclose(fovea.attention(q, k, v, mask=both), wanted, atol=1e-5)


def test_a_deleted_predicate_leaves_no_memory(rng: Any) -> None:
    """A function that is written inside a call is a new one each time."""
    from fovea import _spec

    q, k, v = cases.arrays(rng, Sizes(), np.float32)
    before = len(_spec._predicate_plans)

    class Captured:
        pass

    for wrapped in (lambda f: f, fovea.Predicate, lambda f: fovea.Causal() & ~fovea.Predicate(f)):
        captured = Captured()
        watched = weakref.ref(captured)
        mask: Any = wrapped(lambda b, h, i, j, captured=captured: j <= i)
        fovea.attention(q, k, v, mask=mask)
        assert len(_spec._predicate_plans) == before + 1
        del captured, mask
        gc.collect()
        assert watched() is None
        assert len(_spec._predicate_plans) == before


def test_plans_of_predicates_are_few(rng: Any) -> None:
    from fovea import _spec

    q, k, v = cases.arrays(rng, Sizes(), np.float32)
    kept = [Counted(lambda b, h, i, j, n=n: j <= i + n) for n in range(40)]
    for counted in kept:
        fovea.attention(q, k, v, mask=counted)
    assert len(_spec._predicate_plans) == _spec._MOST_PREDICATE_PLANS
    asked = len(kept[-1].asked)
    fovea.attention(q, k, v, mask=kept[-1])
    assert len(kept[-1].asked) == asked


class Near:
    def __init__(self, reach: int) -> None:
        self.reach, self.asked = reach, 0

    def visible(self, b: Any, h: Any, i: Any, j: Any) -> Any:
        self.asked += 1
        return i - j <= self.reach


def test_a_method_is_a_predicate_of_its_object(rng: Any) -> None:
    """Each access to a method makes a new object, equal to the last."""
    q, k, v = cases.arrays(rng, Sizes(), np.float32)
    near = Near(1)
    results = [fovea.attention(q, k, v, mask=near.visible) for _ in range(3)]
    assert near.asked == 2 and np.array_equal(results[0], results[2])
    assert not np.array_equal(results[0], fovea.attention(q, k, v, mask=Near(2).visible))


def test_threads_may_share_a_predicate(rng: Any) -> None:
    q, k, v = cases.arrays(rng, Sizes(), np.float64)
    counted = Counted(lambda b, h, i, j: j <= i)
    mask = fovea.Predicate(counted)
    barrier = threading.Barrier(4)

    def work() -> None:
        barrier.wait()
        fovea.attention(q, k, v, mask=mask)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert 2 <= len(counted.asked) <= 8 and len(mask.__dict__["_known"]) == 1


def test_a_mask_copies_its_array(rng: Any) -> None:
    torch = pytest.importorskip("torch")
    q, k, v = (torch.from_numpy(x) for x in cases.arrays(rng, Sizes(), np.float64))
    for make in (fovea.Documents, fovea.Tree, fovea.Groups, lambda x: fovea.BlockTable(4, x[None] > 0)):
        buffer = torch.tensor([0, 1, 2, 2, 3, 4, 5])
        mask = make(buffer)
        before = fovea.attention(q, k, v, mask=mask)
        buffer[1:] = 0
        assert torch.equal(fovea.attention(q, k, v, mask=mask), before)
        assert mask != make(buffer)
    lengths = torch.tensor([7, 7])
    both = fovea.KeyLengths(lengths) & ~fovea.KeyLengths([1, 1])
    before = fovea.attention(q, k, v, mask=both)
    lengths[0] = 4
    assert not torch.equal(fovea.attention(q, k, v, mask=both), before)


def test_a_plan_asks_its_function_for_other_sizes(rng: Any) -> None:
    q, k, v = cases.arrays(rng, Sizes(), np.float64)
    step = fovea.plan(
        batch=2, num_query_heads=4, num_kv_heads=2, query_len=5, key_len=7, head_dim=q.shape[3], value_dim=v.shape[3],
        dtype="f64", mask=lambda b, h, i, j: j <= i,
    )
    for n in (3, 6, 7):
        for length in (1, 3):
            got = step(q[:, :, :length], k[:, :, :n], v[:, :, :n])
            want = fovea.attention(q[:, :, :length], k[:, :, :n], v[:, :, :n], mask=fovea.Causal())
            assert np.array_equal(got, want)
    held = fovea.plan(query_len=7, head_dim=4, dtype="f64", mask=np.ones((7, 7), bool))
    with pytest.raises(fovea.InvalidArgument, match="mask"):
        held(np.ones((1, 1, 7, 4)), np.ones((1, 1, 4, 4)), np.ones((1, 1, 4, 4)))


def test_a_mask_of_itself_is_refused_before_it_explodes() -> None:
    mask: fovea.Mask = fovea.Causal()
    with pytest.raises(fovea.InvalidArgument, match="4096 parts"):
        for _ in range(24):
            mask = mask & mask


def test_an_array_mask_reads_back(rng: Any) -> None:
    q, k, v = cases.arrays(rng, Sizes(), np.float64)
    mask = fovea.ArrayMask(np.tri(5, 7, dtype=bool))
    again = eval(repr(mask))
    assert again == mask
    assert np.array_equal(fovea.attention(q, k, v, mask=again), fovea.attention(q, k, v, mask=mask))


def test_an_exception_of_a_predicate_is_passed_on(rng: Any) -> None:
    q, k, v = cases.arrays(rng, Sizes(), np.float64)

    class Mine(Exception):
        pass

    def raises(b: Any, h: Any, i: Any, j: Any) -> Any:
        raise Mine

    for _ in range(2):  # the failed call is not cached
        with pytest.raises(Mine):
            fovea.attention(q, k, v, mask=raises)


def test_key_lengths_of_a_call(rng: Any) -> None:
    """Batches of other lengths share a plan."""
    from fovea import _spec

    q, k, v = cases.arrays(rng, Sizes(), np.float64)
    _spec.known_plan.cache_clear()
    for lengths in ([7, 3], (1, 0), np.array([2, 7], np.int32)):
        mask = fovea.Causal() & fovea.KeyLengths(lengths)
        got = fovea.attention(q, k, v, mask=mask)
        assert np.allclose(got, oracle.attention(q, k, v, mask=fovea.Causal() & fovea.KeyLengths(list(lengths)))[0])
    assert _spec.known_plan.cache_info().misses == 1


def test_key_lengths_given_twice(rng: Any) -> None:
    q, k, v = cases.arrays(rng, Sizes(), np.float64)
    mask = fovea.KeyLengths([5, 6]) & ~fovea.KeyLengths([1, 2])
    assert np.allclose(fovea.attention(q, k, v, mask=mask), oracle.attention(q, k, v, mask=mask)[0])


def test_a_mask_of_many_levels(rng: Any) -> None:
    """Up to the largest depth everything works; a deeper mask is refused when it is made."""
    mask: Any = fovea.Causal()
    for _ in range(_mask._MOST_LEVELS):
        mask = ~mask
    q, k, v = cases.arrays(rng, Sizes(), np.float64)
    assert np.array_equal(fovea.attention(q, k, v, mask=mask), fovea.attention(q, k, v, mask=fovea.Causal()))
    assert eval(repr(mask), {"fovea": fovea}) == mask and isinstance(hash(mask), int)
    with pytest.raises(fovea.InvalidArgument, match="levels"):
        ~mask
    with pytest.raises(fovea.InvalidArgument, match="levels"):
        for _ in range(2000):
            mask = fovea.Causal() & mask


def test_numbers_of_an_iterator_are_kept(rng):
    """An iterator gives its numbers once, and a mask writes them at each new size of call."""
    q = rng.standard_normal((1, 2, 6, 8)).astype("f4")
    for kind, numbers in ((fovea.Documents, [0, 2, 6]), (fovea.KeyLengths, [3]), (fovea.Prefix, [2]), (fovea.Tree, [0, 0, 1, 1, 2, 2])):
        mask = kind(iter(numbers))
        assert mask == kind(numbers) and repr(mask) == repr(kind(numbers))
        for rows in (6, 5):
            given = (q[:, :, :rows], q, q)
            assert np.array_equal(fovea.attention(*given, mask=mask), fovea.attention(*given, mask=kind(numbers)))
