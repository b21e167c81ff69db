"""Query offsets by batch entry: an entry gives the same as in a call of its own with its offset."""

import re

import numpy as np
import pytest

import fovea

BATCH, HEADS, ROWS, KEYS, DIM = 3, 2, 4, 12, 8
OFFSETS = (8, 0, 3)


def arrays(seed: int = 1):
    random = np.random.default_rng(seed)
    shapes = [(BATCH, HEADS, n, DIM) for n in (ROWS, KEYS, KEYS)]
    return [random.standard_normal(shape).astype(np.float32) for shape in shapes]


SEEN = np.random.default_rng(2).random((BATCH, HEADS, ROWS, KEYS)) < 0.7
MASKS = {
    "causal": fovea.Causal(),
    "window": fovea.Causal() & fovea.SlidingWindow(3),
    "function": fovea.Predicate(lambda b, h, i, j: (j <= i) & ((i + j + h) % 3 != 0)),
    "function that says the same of all": fovea.Predicate(lambda b, h, i, j: j % 2 == 0),
    "array": SEEN,
    "array of one entry": SEEN[:1, :1],
    "array of one row": SEEN[:, :, :1],
    "array and causal": fovea.Causal() & fovea.ArrayMask(SEEN),
}


def of_entry(mask, b):
    """The mask for a call of entry b alone."""
    if isinstance(mask, np.ndarray):
        return mask[b : b + 1] if mask.shape[0] > 1 else mask
    if isinstance(mask, fovea.Predicate):
        return fovea.Predicate(lambda _, h, i, j: mask.visible(b, h, i, j))
    if mask is MASKS["array and causal"]:
        return fovea.Causal() & fovea.ArrayMask(SEEN[b : b + 1])
    return mask


@pytest.mark.parametrize("name", MASKS)
def test_an_entry_gives_the_same_as_alone(name):
    q, k, v = arrays()
    mask, mods = MASKS[name], [fovea.AlibiBias(np.array([0.3, 0.1], np.float32))]
    d = np.random.default_rng(3).standard_normal(q.shape).astype(np.float32)
    out, lse, weights = fovea.attention(
        q, k, v, mask=mask, mods=mods, query_offset=OFFSETS, return_lse=True, return_weights=True
    )
    found = fovea.gradients(q, k, v, d, mask=mask, mods=mods, query_offset=OFFSETS)
    slopes = np.zeros(2, np.float32)
    for b, offset in enumerate(OFFSETS):
        own = [x[b : b + 1] for x in (q, k, v)]
        want = fovea.attention(
            *own, mask=of_entry(mask, b), mods=mods, query_offset=offset, return_lse=True, return_weights=True
        )
        for got, alone in zip((out, lse, weights), want):
            np.testing.assert_array_equal(got[b : b + 1], alone)
        alone = fovea.gradients(*own, d[b : b + 1], mask=of_entry(mask, b), mods=mods, query_offset=offset)
        for part in ("query", "key", "value"):
            np.testing.assert_allclose(found[part][b : b + 1], alone[part], rtol=1e-5, atol=1e-6)
        slopes += alone["mods[0].slope"]
    np.testing.assert_allclose(found["mods[0].slope"], slopes, rtol=1e-5, atol=1e-5)


def test_any_sequence_of_whole_numbers_is_a_list_of_offsets():
    q, k, v = arrays()
    want = fovea.attention(q, k, v, mask=fovea.Causal(), query_offset=OFFSETS)
    for same in (list(OFFSETS), np.array(OFFSETS), np.array(OFFSETS, np.int32)):
        np.testing.assert_array_equal(fovea.attention(q, k, v, mask=fovea.Causal(), query_offset=same), want)
    step = fovea.plan(batch=BATCH, num_query_heads=HEADS, query_len=ROWS, key_len=KEYS, head_dim=DIM, mask=fovea.Causal())
    np.testing.assert_array_equal(step(q, k, v, query_offset=OFFSETS), want)


def test_explain_counts_the_tiles_of_each_entry():
    q, k, v = (np.zeros((2, 1, n, 64), np.float32) for n in (256, 4096, 4096))

    def skipped(offset):
        text = fovea.explain(q, k, v, mask=fovea.Causal(), query_offset=offset)
        return int(re.search(r"(\d+) % skipped", text).group(1))

    assert skipped([0, 3840]) == pytest.approx((skipped(0) + skipped(3840)) / 2, abs=1)
    assert skipped(0) > 90 > 10 > skipped(3840)


@pytest.mark.parametrize("mask", [fovea.Causal(), SEEN, lambda b, h, i, j: j <= i], ids=["named", "array", "function"])
@pytest.mark.parametrize(
    "offset", [(1, 2), (1, 2, 3, 4), (0, 0, 1 << 31), (0, 0, "a"), (0, 0, 1.5), [[1, 2, 3]], [], np.ones(3), (0, True, 1)]
)
def test_other_offsets_are_refused_by_name(offset, mask):
    q, k, v = arrays()
    with pytest.raises(fovea.InvalidArgument, match="query_offset"):
        fovea.attention(q, k, v, mask=mask, query_offset=offset)


def test_a_function_is_not_called_for_positions_without_a_query():
    q, k, v = (np.zeros((2, 1, n, DIM), np.float32) for n in (2, 40, 40))
    asked = []

    def visible(b, h, i, j):
        asked.extend((int(entry), int(at)) for entry in np.ravel(b) for at in np.ravel(np.broadcast_to(i, i.shape)))
        return (j <= i) & (b >= 0)

    fovea.attention(q, k, v, mask=fovea.Predicate(visible), query_offset=(30, 5))
    assert {at for _, at in asked} <= {30, 31, 5, 6}


def test_offsets_far_apart_are_refused_if_the_mask_keeps_rows():
    q, k, v = arrays()
    with pytest.raises(fovea.InvalidArgument, match="at most 2\\^24 rows"):
        fovea.attention(q, k, v, mask=SEEN, query_offset=(0, 1, 1 << 29))
