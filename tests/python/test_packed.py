"""Packed batches: an entry gives the same as in a call of its own."""

import numpy as np
import pytest

import fovea

HEADS, DIM = 2, 8
QUERIES, KEYS = (4, 1, 0, 3), (4, 9, 2, 12)
QUERY_STARTS, KEY_STARTS = (0, 4, 5, 5, 8), (0, 4, 13, 15, 27)


def arrays():
    random = np.random.default_rng(1)
    return [random.standard_normal((1, HEADS, n, DIM)).astype(np.float32) for n in (8, 27, 27)]


SEEN = np.random.default_rng(2).random((len(KEYS), HEADS, max(QUERIES), max(KEYS))) < 0.7
MASKS = {
    "causal": lambda b: fovea.Causal(),
    "lengths": lambda b: fovea.KeyLengths([3, 9, 1, 5] if b is None else [(3, 9, 1, 5)[b]]),
    "function": lambda b: fovea.Predicate(lambda e, h, i, j: (j <= i) & ((i + h + (e if b is None else b)) % 3 != 0)),
    "array": lambda b: SEEN if b is None else SEEN[b : b + 1, :, : QUERIES[b], : KEYS[b]],
}


def of_entry(b, *arrays):
    rows = [slice(QUERY_STARTS[b], QUERY_STARTS[b + 1]), *[slice(KEY_STARTS[b], KEY_STARTS[b + 1])] * 2]
    return [x[:, :, own] for x, own in zip(arrays, rows)]


@pytest.mark.parametrize("offset", [None, (0, 5, 1, 7)], ids=["at the end", "offsets"])
@pytest.mark.parametrize("name", MASKS)
def test_an_entry_gives_the_same_as_alone(name, offset):
    q, k, v = arrays()
    where = {"query_starts": QUERY_STARTS, "key_starts": np.array(KEY_STARTS), "query_offset": offset}
    mods = [fovea.AlibiBias(np.array([0.3, 0.1], np.float32))]
    d = np.random.default_rng(3).standard_normal(q.shape).astype(np.float32)
    out, lse, weights = fovea.attention(
        q, k, v, mask=MASKS[name](None), mods=mods, return_lse=True, return_weights=True, **where
    )
    found = fovea.gradients(q, k, v, d, mask=MASKS[name](None), mods=mods, **where)
    slopes = np.zeros(2, np.float32)
    for b in range(len(KEYS)):
        options = {"mask": MASKS[name](b), "mods": mods, "query_offset": None if offset is None else offset[b]}
        rows, keys = slice(QUERY_STARTS[b], QUERY_STARTS[b + 1]), slice(KEY_STARTS[b], KEY_STARTS[b + 1])
        own = of_entry(b, q, k, v)
        want = fovea.attention(*own, return_lse=True, return_weights=True, **options)
        np.testing.assert_array_equal(out[:, :, rows], want[0])
        np.testing.assert_array_equal(lse[:, :, rows], want[1])
        np.testing.assert_array_equal(weights[:, :, rows, : KEYS[b]], want[2])
        assert not weights[:, :, rows, KEYS[b] :].any()
        alone = fovea.gradients(*own, d[:, :, rows], **options)
        for part, at in (("query", rows), ("key", keys), ("value", keys)):
            np.testing.assert_allclose(found[part][:, :, at], alone[part], rtol=1e-5, atol=1e-6)
        slopes += alone["mods[0].slope"]
    np.testing.assert_allclose(found["mods[0].slope"], slopes, rtol=1e-5, atol=1e-5)


def test_a_plan_serves_packed_batches():
    q, k, v = arrays()
    want = fovea.attention(q, k, v, mask=fovea.Causal(), query_starts=QUERY_STARTS, key_starts=KEY_STARTS)
    step = fovea.plan(
        batch=6, num_query_heads=HEADS, query_len=5, key_len=12, head_dim=DIM, mask=fovea.Causal()
    )
    np.testing.assert_array_equal(step(q, k, v, query_starts=QUERY_STARTS, key_starts=KEY_STARTS), want)
    assert "batch 4" in fovea.explain(q, k, v, query_starts=QUERY_STARTS, key_starts=KEY_STARTS)


def test_a_function_is_asked_about_the_queries_of_an_entry_alone():
    q, k, v = arrays()
    asked = set()

    def visible(b, h, i, j):
        asked.update((int(e), int(p)) for e in np.ravel(b) for p in np.ravel(i[0] if i.shape[0] == 1 else i[e]))
        return (j <= i) & (b >= 0)

    fovea.attention(q, k, v, mask=fovea.Predicate(visible), query_starts=QUERY_STARTS, key_starts=KEY_STARTS)
    first = [key - query for query, key in zip(QUERIES, KEYS)]
    own = {(b, first[b] + n) for b, count in enumerate(QUERIES) for n in range(count)}
    assert own <= asked and len(asked - own) <= 2  # two more entries, which show on which axes the answer depends


WRONG = {
    "queries alone": ({"query_starts": QUERY_STARTS}, "key_starts"),
    "keys alone": ({"key_starts": KEY_STARTS}, "query_starts"),
    "another count": ({"query_starts": (0, 4, 8), "key_starts": KEY_STARTS}, "key_starts"),
    "descending": ({"query_starts": (0, 5, 4, 5, 8), "key_starts": KEY_STARTS}, "query_starts"),
    "not from 0": ({"query_starts": (1, 4, 5, 5, 8), "key_starts": KEY_STARTS}, "query_starts"),
    "too few rows": ({"query_starts": (0, 4, 5, 5, 7), "key_starts": KEY_STARTS}, "query_starts"),
    "none": ({"query_starts": [], "key_starts": []}, "query_starts"),
    "halves": ({"query_starts": (0, 4.5, 5, 5, 8), "key_starts": KEY_STARTS}, "query_starts"),
    "text": ({"query_starts": "0458", "key_starts": KEY_STARTS}, "query_starts"),
    "a number": ({"query_starts": 3, "key_starts": 4}, "query_starts"),
    "offsets": ({"query_starts": QUERY_STARTS, "key_starts": KEY_STARTS, "query_offset": (1, 2)}, "query_offset"),
}


@pytest.mark.parametrize("mask", [None, SEEN], ids=["no mask", "array"])
@pytest.mark.parametrize("name", WRONG)
def test_wrong_starts_are_refused_by_name(name, mask):
    options, argument = WRONG[name]
    with pytest.raises(fovea.InvalidArgument, match=argument):
        fovea.attention(*arrays(), mask=mask, **options)
    step = fovea.plan(batch=6, num_query_heads=HEADS, query_len=5, key_len=12, head_dim=DIM)
    with pytest.raises(fovea.InvalidArgument, match=argument):
        step(*arrays(), **options)


def test_a_padded_batch_beside_starts_is_refused():
    q, k, v = (np.concatenate([x, x]) for x in arrays())
    with pytest.raises(fovea.InvalidArgument, match="batch of 1"):
        fovea.attention(q, k, v, query_starts=QUERY_STARTS, key_starts=KEY_STARTS)


def test_a_location_score_without_values_takes_starts_of_keys():
    q, _, _ = arrays()
    W = np.random.default_rng(4).standard_normal((max(KEYS), DIM)).astype(np.float32)
    where = {"query_starts": QUERY_STARTS, "key_starts": KEY_STARTS}
    weights = fovea.attention(q, None, None, score=fovea.Location(W), return_weights=True, **where)
    for b in range(len(KEYS)):
        rows = slice(QUERY_STARTS[b], QUERY_STARTS[b + 1])
        if rows.start == rows.stop:
            continue
        alone = fovea.attention(q[:, :, rows], None, None, score=fovea.Location(W[: KEYS[b]]), return_weights=True)
        np.testing.assert_array_equal(weights[:, :, rows, : KEYS[b]], alone)
