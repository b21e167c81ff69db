"""States of recurrences in `fovea.KvCache`, batches that are written whole or not at all, and the names in errors."""

import os

import numpy as np
import pytest

import fovea
from test_cache import DIM, HEADS, VALUE, layer, query, rows


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_the_state_of_a_recurrence_is_a_row_of_a_cache(rng, tmp_path, dtype):
    numpy_dtype = {"f32": np.float32, "f64": np.float64}[dtype]
    sizes = (1, HEADS, 64, DIM)
    q, k, v = (rng.standard_normal(sizes).astype(numpy_dtype) for _ in range(3))
    gates = fovea.ScalarDecay(-rng.random(sizes[:3]).astype(numpy_dtype))
    layers = [layer(dtype=dtype), fovea.CacheLayer(1, HEADS * DIM * DIM, dtype=dtype, values="none", store=fovea.LastRow())]
    cache = fovea.KvCache(layers)

    def read(sequence, begin, end):
        part = slice(begin, end)
        before = cache.last_row(1, sequence).reshape(1, HEADS, DIM, DIM)
        out, after = fovea.recurrence(
            q[:, :, part], k[:, :, part], v[:, :, part], decay=fovea.ScalarDecay(gates.log_decay[:, :, part]),
            initial_state=before, return_state=True
        )
        cache.reserve(sequence, end - begin)
        cache.append(0, sequence, k[:, :, part], v[:, :, part, :VALUE])
        cache.replace(1, sequence, after)
        cache.commit(sequence)
        return out

    want, last = fovea.recurrence(q, k, v, decay=gates, return_state=True)
    a, b = cache.start(), cache.start()
    tolerance = dict(rtol=1e-4, atol=1e-5) if dtype == "f32" else dict(rtol=1e-10, atol=1e-12)
    np.testing.assert_array_equal(cache.last_row(1, [a, b]), np.zeros((2, HEADS * DIM * DIM), numpy_dtype))
    np.testing.assert_allclose(read(a, 0, 30), want[:, :, :30], **tolerance)
    cache.checkpoint(a)
    fork, middle = cache.fork(a), cache.last_row(1, a)
    rest = read(a, 30, 64)
    np.testing.assert_allclose(rest, want[:, :, 30:], **tolerance)
    np.testing.assert_allclose(cache.last_row(1, a), last.reshape(1, -1), **tolerance)
    np.testing.assert_array_equal(cache.last_row(1, [fork, b]), np.concatenate([middle, 0 * middle]))
    np.testing.assert_array_equal(read(fork, 30, 64), rest)
    cache.save(a, tmp_path / "sequence")
    loaded = cache.load(tmp_path / "sequence")
    np.testing.assert_array_equal(cache.last_row(1, loaded), cache.last_row(1, a))
    with pytest.raises(fovea.InvalidArgument, match="LastRow"):
        cache.truncate(a, 40)
    for sequence in (a, loaded):  # checkpoints are part of a file
        cache.truncate(sequence, 30)
        np.testing.assert_array_equal(cache.last_row(1, sequence), middle)
        np.testing.assert_array_equal(read(sequence, 30, 64), rest)
    states = np.concatenate([last, 2 * last])[:, :, :, ::-1]  # not contiguous
    for sequence in (a, b):
        cache.reserve(sequence, 1)
    cache.replace(1, [a, b], states)
    cache.append(0, [a, b], k[:, :, :1].repeat(2, axis=0), v[:, :, :1, :VALUE].repeat(2, axis=0))
    for sequence in (a, b):
        cache.commit(sequence)
    np.testing.assert_array_equal(cache.last_row(1, [a, b]), states.reshape(2, -1))
    with pytest.raises(fovea.InvalidArgument, match=r"KvCache.replace: sequence: expected .* reserved"):
        cache.replace(1, a, last)
    assert cache.length(a) == 65


def test_errors_of_last_rows_and_names_of_functions(rng):
    state = fovea.CacheLayer(1, 6, values="none", store=fovea.LastRow())
    cache = fovea.KvCache([layer(), state])
    s, released, other = cache.start(), cache.start(), fovea.KvCache([layer()]).start()
    cache.release(released)
    cache.reserve(s, 2)
    row = np.zeros((1, 2, 3), np.float32)
    alone = fovea.KvCache([state])
    full = alone.start()
    alone.reserve(full, 1)
    alone.replace(0, full, row)
    alone.commit(full)
    for call, function, argument in (
        (lambda: cache.replace(0, s, row), "KvCache.replace", "layer"),
        (lambda: cache.replace(2, s, row), "KvCache.replace", "layer"),
        (lambda: cache.replace(1, s, row[:, :1]), "KvCache.replace", "rows"),
        (lambda: cache.replace(1, s, row.astype("f8")), "KvCache.replace", "rows"),
        (lambda: cache.replace(1, s, None), "KvCache.replace", "rows"),
        (lambda: cache.replace(1, s, np.float32(3)), "KvCache.replace", "rows"),
        (lambda: cache.replace(1, [s, s], row), "KvCache.replace", "rows"),
        (lambda: cache.replace(1, released, row), "KvCache.replace", "sequence"),
        (lambda: cache.last_row(0, s), "KvCache.last_row", "layer"),
        (lambda: alone._core.last_rows(0, [full], np.zeros((1, 5), np.float32)), "KvCache.last_row", "rows"),
        (lambda: alone._core.last_rows(0, [full], np.zeros((1, 6), np.float64)), "KvCache.last_row", "rows"),
        (lambda: cache.last_row(2, s), "KvCache.last_row", "layer"),
        (lambda: cache.last_row(1, other), "KvCache.last_row", "sequence"),
        (lambda: cache.rows(1, s), "KvCache.rows", "layer"),
        (lambda: cache.rows(0, released), "KvCache.rows", "sequence"),
        (lambda: cache.save(released, "x"), "KvCache.save", "sequence"),
        (lambda: cache.save(s, "x\0y"), "KvCache.save", "path"),
        (lambda: cache.save(s, 3), "KvCache.save", "path"),
        (lambda: cache.save(s, "x", note="\udc80"), "KvCache.save", "note"),
        (lambda: cache.load(None), "KvCache.load", "path"),
        (lambda: cache.replace(1, [s, s], np.zeros((2, 6), np.float32)), "KvCache.replace", "sequences"),
        (lambda: fovea.KvCache([fovea.CacheLayer(2, 6, values="none", store=fovea.LastRow())]), "KvCache",
         "layers[0].num_kv_heads"),
        (lambda: fovea.KvCache([fovea.CacheLayer(1, 6, store=fovea.LastRow())]), "KvCache", "layers[0].values"),
        (lambda: fovea.attention(query(rng, 1), cache=cache[0], sequences=[released]), "attention", "sequences"),
        (lambda: fovea.attention(query(rng, 1), cache=cache[1], sequences=[s]), "attention", "cache"),
        (lambda: fovea.explain(query(rng, 1), cache=cache[0], sequences=[released]), "explain", "sequences"),
    ):
        with pytest.raises(fovea.InvalidArgument) as caught:
            call()
        assert (caught.value.function, caught.value.argument) == (function, argument), caught.value
    assert cache.pending(1, s) == 0
    with pytest.raises(fovea.InvalidArgument, match='"none" beside LastRow'):
        fovea.KvCache([fovea.CacheLayer(1, 6, store=fovea.LastRow())])


def test_a_batch_is_written_whole_or_not_at_all(rng, tmp_path):
    state = fovea.CacheLayer(1, 6, values="none", store=fovea.LastRow())
    cache = fovea.KvCache([layer(), state])
    a, b = cache.start(), cache.start()
    cache.reserve(a, 1)
    key, value = (np.concatenate([x, x]) for x in rows(rng, 1))
    states = np.arange(12, dtype=np.float32).reshape(2, 6)
    foreign, released = fovea.KvCache([layer(), state]).start(), cache.start()
    cache.release(released)
    for second in (b, foreign, released, a):  # the first has no reserved rows, the last stands there twice
        for call in (lambda: cache.append(0, [a, second], key, value), lambda: cache.replace(1, [a, second], states)):
            with pytest.raises(fovea.InvalidArgument):
                call()
            assert [cache.pending(n, a) for n in range(2)] == [0, 0]
    cache.reserve(b, 1)
    cache.append(0, [a, b], key, value)
    cache.replace(1, [a, b], states)
    for sequence in (a, b):
        cache.commit(sequence)
    np.testing.assert_array_equal(cache.last_row(1, [a, b]), states)
    file = bytes(tmp_path) + b"/\xff"  # a name that is not UTF-8
    cache.save(a, file)
    np.testing.assert_array_equal(cache.last_row(1, cache.load(os.fsdecode(file))), states[:1])
