"""Values of the algebra: their repr can be evaluated, and they can be compared, hashed, copied and pickled."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import cases
import numpy as np
import pytest
from cases import Sizes

import fovea


def even(b: Any, h: Any, i: Any, j: Any) -> Any:
    return (i + j) % 2 == 0


def _values() -> list[Any]:
    rng = np.random.default_rng(5)
    tables = (cases.SCORES, cases.MODS, cases.WEIGHT_MODS, cases.NORMALIZERS, cases.MASKS)
    made = [make(rng, Sizes()) for table in tables for name, make in table.items() if name not in ("none", "predicate")]
    return made + [
        fovea.HardSample(),
        fovea.GumbelSample(),
        fovea.GumbelSample(0.5),
        fovea.ForgetGate.of(-rng.random((1, 2, 3))),
        fovea.KeyLengths(),
        fovea.SlidingWindow(None, None),
        fovea.SlidingWindow(lookahead=3),
        fovea.Dilated(1, step=4),
        fovea.BigBird(128),
        fovea.BigBird(128, random=1, seed=9),
        fovea.GlobalTokens([]),
        fovea.GlobalTokens([7]),
        fovea.Documents(np.array([0, 4])),
        fovea.DenseBias([[0.0, float("-inf")], [float("inf"), 1.5]]),
        fovea.DenseBias(np.array([0.1, -np.inf], np.float32)),
        fovea.SoftCap(np.float32(3)),
        fovea.SoftCap(50),
        fovea.AlibiBias(()),
        fovea.AlibiBias((0.5,)),
    ]


@pytest.mark.parametrize("value", _values(), ids=lambda value: type(value).__name__)
def test_the_repr_of_a_value_can_be_evaluated(value: Any) -> None:
    again = eval(repr(value), {"fovea": fovea})
    assert type(again) is type(value) and again == value and not again != value
    assert repr(again) == repr(value)
    assert hash(again) == hash(value)


@pytest.mark.parametrize("value", _values(), ids=lambda value: type(value).__name__)
def test_copies(value: Any) -> None:
    for other in (pickle.loads(pickle.dumps(value)), copy.copy(value), copy.deepcopy(value)):
        assert type(other) is type(value) and other == value and hash(other) == hash(value)


def test_the_repr_of_random_masks_can_be_evaluated() -> None:
    rng = np.random.default_rng(2)
    leaves = [make(rng, Sizes()) for name, make in cases.MASKS.items() if name not in ("none", "predicate")]

    def draw(depth: int) -> Any:
        kind = rng.integers(0, 4) if depth else 3
        if kind == 0:
            return draw(depth - 1) & draw(depth - 1)
        if kind == 1:
            return draw(depth - 1) | draw(depth - 1)
        if kind == 2:
            return ~draw(depth - 1)
        return leaves[rng.integers(len(leaves))]

    for _ in range(500):
        mask = draw(5)
        again = eval(repr(mask), {"fovea": fovea})
        assert again == mask and repr(again) == repr(mask) and hash(again) == hash(mask), repr(mask)
        assert pickle.loads(pickle.dumps(mask)) == mask


def test_values_differ() -> None:
    """No two of these are equal."""
    different = [
        fovea.Causal(),
        fovea.Everything(),
        fovea.SlidingWindow(1),
        fovea.SlidingWindow(2),
        fovea.SlidingWindow(1, 1),
        fovea.Causal() & fovea.SlidingWindow(1),
        fovea.SlidingWindow(1) & fovea.Causal(),
        fovea.Causal() | fovea.SlidingWindow(1),
        ~fovea.Causal(),
        fovea.Prefix(3),
        fovea.StreamingSinks(3),
        fovea.SoftCap(3),
        fovea.Temperature(3),
        fovea.AlibiBias([1.0, 2.0]),
        fovea.AlibiBias([1.0, 3.0]),
        fovea.RelativeBias([1.0, 2.0], 128, "causal"),
        fovea.RelativeBias([1.0, 2.0]),
        fovea.Softmax(),
        fovea.Entmax(1.5),
        fovea.Entmax(1.25),
        fovea.Additive([[1.0]], [[1.0]], [1.0]),
        fovea.Additive([[1.0]], [[1.0]], [1.0], [1.0]),
        None,
        "fovea.Causal()",
    ]
    for n, a in enumerate(different):
        for m, b in enumerate(different):
            assert (a == b) == (n == m), (a, b)


def test_equal_values_hash_alike() -> None:
    slopes = [0.5, 0.25]
    alike = [fovea.AlibiBias(x) for x in (slopes, tuple(slopes), np.array(slopes), np.array(slopes, np.float32))]
    assert all(a == b and hash(a) == hash(b) for a in alike for b in alike)
    assert len({fovea.SoftCap(3), fovea.SoftCap(3.0), fovea.SoftCap(np.float64(3))}) == 1
    assert len({fovea.GlobalTokens(x) for x in ([1, 2], (1, 2), np.array([1, 2]), range(1, 3))}) <= 2


def test_values_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        fovea.SoftCap(3).cap = 4  # type: ignore[misc]
    positions = [0]
    mask = fovea.GlobalTokens(positions)
    table = np.eye(2, dtype=bool)
    blocks = fovea.BlockTable(2, table)
    q = np.random.default_rng(0).standard_normal((1, 1, 4, 4))
    before = [fovea.attention(q, q, q, mask=m) for m in (mask, blocks)]
    positions.append(2)
    table[:] = True
    after = [fovea.attention(q, q, q, mask=m) for m in (mask, blocks)]
    assert all(np.array_equal(a, b) for a, b in zip(before, after))
    assert mask == fovea.GlobalTokens([0]) and blocks == fovea.BlockTable(2, [[True, False], [False, True]])


def test_arrays_are_read_at_each_call() -> None:
    """A call sees the numbers that an optimiser has written since."""
    q = np.random.default_rng(0).standard_normal((1, 2, 4, 4))
    slopes = np.array([0.0, 0.0])
    value = fovea.AlibiBias(slopes)
    number = hash(value)
    run = fovea.plan(num_query_heads=2, query_len=4, head_dim=4, dtype="f64", mods=[value])
    before, planned = fovea.attention(q, q, q, mods=[value]), run(q, q, q)
    slopes[:] = 1
    assert not np.array_equal(before, fovea.attention(q, q, q, mods=[value]))
    assert not np.array_equal(planned, run(q, q, q))
    assert hash(value) == number
    visible = np.ones((4, 4), bool)
    mask = fovea.ArrayMask(visible)
    before = fovea.attention(q, q, q, mask=mask)
    visible[:, 0] = False
    assert not np.array_equal(before, fovea.attention(q, q, q, mask=mask))


def test_signatures() -> None:
    import inspect

    assert str(inspect.signature(fovea.RelativeBias)) == (
        "(table: 'Any', max_distance: 'int' = 128, direction: 'str' = 'bidirectional')"
    )
    assert fovea.RelativeBias([1.0], direction="causal") == fovea.RelativeBias([1.0], 128, "causal")
    for wrong in (dict(), dict(cap=1, cup=2)):
        with pytest.raises(TypeError, match="SoftCap"):
            fovea.SoftCap(**wrong)
    with pytest.raises(TypeError, match="multiple values"):
        fovea.SoftCap(1, cap=2)  # type: ignore[misc]
    with pytest.raises(AttributeError):
        del fovea.SoftCap(1).cap


def test_long_arrays_print_short() -> None:
    assert repr(fovea.DenseBias(np.zeros((100, 100)))) == "fovea.DenseBias(<float64 [100, 100]>)"


def test_the_answers_of_a_predicate_are_not_pickled() -> None:
    mask = fovea.Causal() & fovea.Predicate(even)
    q = np.ones((1, 1, 3, 2))
    out = fovea.attention(q, q, q, mask=mask)
    for other in (pickle.loads(pickle.dumps(mask)), copy.deepcopy(mask)):
        assert other == mask and hash(other) == hash(mask)
        assert np.array_equal(fovea.attention(q, q, q, mask=other), out)


def test_errors_pickle() -> None:
    try:
        fovea.attention(1, 2, 3)
    except fovea.InvalidArgument as error:
        again = pickle.loads(pickle.dumps(error))
        assert (again.function, again.argument, again.expected, again.got) == (
            error.function,
            error.argument,
            error.expected,
            error.got,
        )
        assert str(again) == str(error) and isinstance(error, ValueError)


def test_every_precision_is_at_least_as_exact_as_it_says() -> None:
    random = np.random.default_rng(1)
    q, k, v = (random.standard_normal((1, 2, 40, 32)).astype(np.float32) for _ in range(3))
    exact = fovea.attention(*(x.astype(np.float64) for x in (q, k, v)))
    for precision, most in {"full": 1e-6, "higher": 1e-6, "high": 1e-5, "medium": 2**-7}.items():
        off = fovea.attention(q, k, v, precision=precision) - exact
        assert np.linalg.norm(off) <= most * np.linalg.norm(exact), precision


def test_the_sizes_of_a_score_come_from_the_arguments_that_the_engine_names() -> None:
    from fovea import _core, _properties

    exported = (getattr(fovea, name) for name in fovea.scores.__all__)
    declared = _core.sizes_of_scores()
    assert declared.keys() == {score._name for score in exported if score is not fovea.Score}
    for name, make in cases.SCORES.items():
        score = make(np.random.default_rng(1), Sizes())
        if isinstance(score, fovea.Concat):
            score = score._split(Sizes().dim)
        has_width = _properties.hidden_rows(score._text()) is not None
        assert has_width == (name.split(" ")[0] in ("additive", "concat", "low-rank", "coverage")), name
        # Every array of such a score has one row for each element of its width.
        assert {score._hidden()} == ({len(array) for array in score._arrays().values()} if has_width else {0}), name
        assert ("key_len" in declared[score._text()]) != _properties.reads_keys(score._text())
    with pytest.raises(fovea.InvalidArgument) as caught:
        fovea.attention(np.ones((1, 2, 3, 4)), None, None, score=fovea.Location(None), return_weights=True)
    assert caught.value.argument == "score.W"
