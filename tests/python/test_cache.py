"""`fovea.KvCache` with NumPy: the verbs against the same rows as arrays, files, and what is refused."""

import copy
import pickle
import subprocess
import sys
import threading

import numpy as np
import pytest

import fovea

HEADS, DIM, VALUE = 2, 8, 6
STORES = {
    "paged": fovea.Paged(4),
    "contiguous": fovea.Contiguous(2),
    "ring": fovea.Ring(window=64, sinks=2, slack=16),
}


def layer(**more):
    return fovea.CacheLayer(**{**dict(num_kv_heads=HEADS, head_dim=DIM, value_dim=VALUE), **more})


def rows(rng, count, dtype=np.float32):
    return [rng.standard_normal((1, HEADS, count, dim)).astype(dtype) for dim in (DIM, VALUE)]


def add(cache, sequence, key, value, ids=None):
    cache.reserve(sequence, key.shape[2])
    for number in range(len(cache)):
        cache.append(number, sequence, key, value)
    cache.commit(sequence, ids)


def query(rng, count, batch=1, heads=4, dtype=np.float32):
    return rng.standard_normal((batch, heads, count, DIM)).astype(dtype)


@pytest.mark.parametrize("dtype", ["f32", "f64", "f16"])
@pytest.mark.parametrize("store", STORES)
def test_attention_over_a_cache_is_attention_over_its_rows(rng, store, dtype):
    numpy_dtype = {"f32": np.float32, "f64": np.float64, "f16": np.float16}[dtype]
    cache = fovea.KvCache([layer(dtype=dtype, store=STORES[store])])
    sequence = cache.start()
    key, value = rows(rng, 20, numpy_dtype)
    for begin in (0, 7, 13):
        end = {0: 7, 7: 13, 13: 20}[begin]
        add(cache, sequence, key[:, :, begin:end], value[:, :, begin:end])
    q = query(rng, 3, dtype=numpy_dtype)
    got = fovea.attention(
        q, cache=cache[0], sequences=[sequence], mask=fovea.Causal(), return_lse=True, return_weights=True
    )
    want = fovea.attention(q, key, value, mask=fovea.Causal(), return_lse=True, return_weights=True)
    for x, y in zip(got, want):
        np.testing.assert_allclose(x, y, rtol=2e-3 if dtype == "f16" else 2e-5, atol=2e-3 if dtype == "f16" else 2e-6)
    for x, y in zip(cache.rows(0, sequence), (key, value)):
        np.testing.assert_array_equal(x, y)


def test_entries_of_a_batch_have_lengths_of_their_own(rng):
    cache = fovea.KvCache([layer(store=fovea.Paged(4))])
    sequences, given = [cache.start(), cache.start()], [rows(rng, 5), rows(rng, 90)]
    for sequence, one in zip(sequences, given):
        add(cache, sequence, *one)
    q = query(rng, 2, batch=2)
    options = dict(mask=fovea.Causal(), mods=[fovea.AlibiBias(np.array([0.1, 0.2, 0.3, 0.4], np.float32))])
    together = fovea.attention(q, cache=cache[0], sequences=sequences, **options)
    packed = fovea.attention(
        np.concatenate([q[:1], q[1:, :, :1]], 2), cache=cache[0], sequences=sequences, query_starts=[0, 2, 3],
        query_offset=[3, 88], **options
    )
    np.testing.assert_array_equal(packed[:, :, :2], together[:1])
    np.testing.assert_array_equal(packed[:, :, 2:], together[1:, :, :1])
    for n, (key, value) in enumerate(given):
        want = fovea.attention(q[n : n + 1], key, value, **options)
        np.testing.assert_allclose(together[n : n + 1], want, rtol=2e-5, atol=2e-6)


def test_masks_of_arrays_and_functions_and_lengths(rng):
    cache = fovea.KvCache([layer()])
    sequences = [cache.start(), cache.start()]
    key, value = rows(rng, 9)
    for sequence in sequences:
        add(cache, sequence, key, value)
    q, twice = query(rng, 4, batch=2), [np.concatenate([x, x]) for x in (key, value)]
    seen = rng.random((2, 4, 4, 9)) < 0.7
    for mask in (
        seen,
        np.where(seen, 0, -np.inf).astype(np.float32),
        lambda b, h, i, j: (j <= i) & ((i + j + b) % 3 != 0),
        fovea.Causal() & fovea.KeyLengths([9, 4]),
    ):
        got = fovea.attention(q, cache=cache[0], sequences=sequences, mask=mask)
        np.testing.assert_allclose(got, fovea.attention(q, *twice, mask=mask), rtol=2e-5, atol=2e-6)


def test_a_batch_is_appended_in_one_call(rng):
    cache = fovea.KvCache([layer()])
    sequences = [cache.start(), cache.start(), cache.start()]
    key, value = (np.concatenate([x, 2 * x, 3 * x]) for x in rows(rng, 4))
    for sequence in sequences:
        cache.reserve(sequence, 4)
    cache.append(0, sequences, key, value)
    assert [cache.pending(0, s) for s in sequences] == [4, 4, 4]
    np.testing.assert_array_equal(cache.rows(0, sequences)[0], key)
    with pytest.raises(fovea.InvalidArgument, match=r"key: expected \[2, 2, rows, 8\]"):
        cache.append(0, sequences[:2], key, value)


def test_the_verbs_do_what_they_do_to_lists(rng):
    cache = fovea.KvCache([layer(store=fovea.Paged(4)), layer(store=fovea.Ring(8, 1, 16))])
    key, value = rows(rng, 12)
    ids = list(range(100, 112))
    s = cache.start()
    add(cache, s, key, value, ids)
    assert (cache.length(s), cache.ids(s), cache.pending(0, s)) == (12, ids, 0)
    fork = cache.fork(s)
    cache.truncate(fork, 9)
    add(cache, fork, key[:, :, :2], value[:, :, :2])
    np.testing.assert_array_equal(cache.rows(0, s)[0], key)
    np.testing.assert_array_equal(
        cache.rows(0, fork)[0], np.concatenate([key[:, :, :9], key[:, :, :2]], 2)
    )
    cache.permute([s, fork], [1, 1])
    assert cache.length(s) == cache.length(fork) == 11
    cache.reserve(s, 3)
    for number in range(2):
        cache.append(number, s, key[:, :, :3], value[:, :, :3])
    cache.keep(s, [0, 2])
    cache.commit(s)
    assert cache.length(s) == 13
    np.testing.assert_array_equal(cache.rows(0, s)[0][:, :, 11:], key[:, :, [0, 2]])
    cache.checkpoint(s)
    for _ in range(3):
        add(cache, s, key, value)
    cache.truncate(s, 13)
    cache.reserve(s, 1)
    cache.append(0, s, key[:, :, :1], value[:, :, :1])
    cache.rollback(s)
    assert cache.pending(0, s) == 0
    cache.release(s)
    assert not s and fork
    with pytest.raises(fovea.InvalidArgument, match="released"):
        cache.length(s)
    used = cache.bytes().used
    assert used == cache.bytes(fork).used > 0
    del fork
    assert cache.bytes().used == 0


def test_dropped_pages_are_given_back(rng):
    cache = fovea.KvCache([layer(store=fovea.Paged(4))])
    s = cache.start()
    key, value = rows(rng, 20)
    add(cache, s, key, value)
    used = cache.bytes().used
    cache.drop(s, [(3, 13)])
    assert cache.bytes().used == used * 3 // 5
    kept = np.concatenate([key[:, :, :4], np.zeros_like(key[:, :, :8]), key[:, :, 12:]], 2)
    np.testing.assert_array_equal(cache.rows(0, s)[0], kept)
    q = query(rng, 1)
    mask = fovea.SlidingWindow(6) | fovea.StreamingSinks(2)
    np.testing.assert_allclose(
        fovea.attention(q, cache=cache[0], sequences=[s], mask=mask),
        fovea.attention(q, key, value, mask=mask),
        rtol=2e-5,
        atol=2e-6,
    )
    for ranges in ([(3, 2)], [(0, 30)], [3], [(0, 4), (2, 6)], "ab", [(0.5, 4)]):
        with pytest.raises(fovea.InvalidArgument, match="range"):
            cache.drop(s, ranges)
    with pytest.raises(fovea.InvalidArgument, match="cache"):
        fovea.attention(q, cache=cache[0], sequences=[s])


def test_prefixes_and_limits(rng):
    page = 4 * HEADS * (DIM + VALUE) * 4
    # A page is filled up to a multiple of 64 bytes in each part, which these sizes already are.
    cache = fovea.KvCache([layer(store=fovea.Paged(4))], limit_bytes=4 * page, prefix_bytes=2 * page)
    key, value = rows(rng, 8)
    ids = np.arange(8)
    s = cache.start(ids, salt=3)
    add(cache, s, key, value, ids)
    cache.release(s)
    assert cache.find_prefix(ids, 3) == 4 and cache.find_prefix(ids) == 0
    assert cache.bytes().prefixes == 2 * page
    t = cache.start(ids, salt=3)
    np.testing.assert_array_equal(cache.rows(0, t)[0], key[:, :, :4])
    with pytest.raises(fovea.CacheFull) as caught:
        cache.reserve(t, 20)
    assert caught.value.limit == 4 * page
    assert pickle.loads(pickle.dumps(caught.value)).needed == caught.value.needed
    assert cache.length(t) == 4


LOADS = """
import sys, numpy as np, fovea
cache = fovea.KvCache([fovea.CacheLayer(2, 8, 6, store=fovea.Paged(4))])
s = cache.load(sys.argv[1], "model", memory=sys.argv[2])
q = np.load(sys.argv[3])
np.save(sys.argv[4], fovea.attention(q, cache=cache[0], sequences=[s], mask=fovea.Causal()))
"""


@pytest.mark.parametrize("memory", ["copied", "mapped"])
def test_another_process_continues_to_the_same_bits(rng, tmp_path, memory):
    cache = fovea.KvCache([layer(store=fovea.Paged(4))])
    s = cache.start()
    add(cache, s, *rows(rng, 30))
    cache.save(s, tmp_path / "sequence", "model")
    np.save(tmp_path / "q.npy", query(rng, 3))
    files = [tmp_path / "sequence", memory, tmp_path / "q.npy", tmp_path / "out.npy"]
    subprocess.run([sys.executable, "-c", LOADS, *map(str, files)], check=True)
    want = fovea.attention(np.load(tmp_path / "q.npy"), cache=cache[0], sequences=[s], mask=fovea.Causal())
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), want)
    t = cache.load(tmp_path / "sequence", "model", memory=memory)
    assert (cache.bytes().mapped > 0) == (memory == "mapped")
    cache.release(t)
    with pytest.raises(fovea.FileError, match="the note 'model', expected 'other'") as caught:
        cache.load(tmp_path / "sequence", "other")
    assert caught.value.file == str(tmp_path / "sequence")
    assert pickle.loads(pickle.dumps(caught.value)).reason == caught.value.reason
    other = fovea.KvCache([layer(store=fovea.Paged(8))])
    with pytest.raises(fovea.FileError, match=r"layers\[0\].store = Paged\{4\}, and this cache has Paged\{8\}"):
        other.load(tmp_path / "sequence", "model")


def test_errors_name_the_argument(rng):
    cache = fovea.KvCache([layer()])
    s = cache.start()
    key, value = rows(rng, 4)
    add(cache, s, key, value)
    q = query(rng, 2)
    other = fovea.KvCache([layer()]).start()
    for call, argument in (
        (lambda: fovea.KvCache([]), "layers"),
        (lambda: fovea.KvCache([3]), "layers[0]"),
        (lambda: fovea.KvCache([layer(dtype="int8")]), "dtype"),
        (lambda: fovea.KvCache([layer(values="shared")]), "values"),
        (lambda: fovea.KvCache([layer(store="paged")]), "store"),
        (lambda: fovea.KvCache([layer(store=fovea.Paged(48))]), "layers[0].store.page_size"),
        (lambda: fovea.KvCache([layer()], limit_bytes=-1), "limit_bytes"),
        (lambda: cache.reserve(s, 1.5), "rows"),
        (lambda: cache.reserve(other, 1), "sequence"),
        (lambda: cache.reserve(None, 1), "sequence"),
        (lambda: cache.append(0, [s, 4], key, value), "sequences[1]"),
        (lambda: cache.append(0, s, key, value), "key"),
        (lambda: cache.append(0, s, key[0], value), "key"),
        (lambda: cache.append(1, s, key, value), "layer"),
        (lambda: cache.commit(s, [1 << 40]), "ids"),
        (lambda: cache.truncate(s, 5), "length"),
        (lambda: cache.permute([s, s], [0, 1]), "sequences[1]"),
        (lambda: cache.permute([s], [1]), "indices[0]"),
        (lambda: cache.permute([s], [0, 0]), "indices"),
        (lambda: cache.permute([s], []), "indices"),
        (lambda: cache.start([1], salt=-1), "salt"),
        (lambda: cache.load("x", memory="gpu"), "memory"),
        (lambda: cache.save(s, "x", note=b"x"), "note"),
        (lambda: cache.rows(0, [s, cache.start()]), "sequences"),
        (lambda: fovea.attention(q, cache=cache, sequences=[s]), "cache"),
        (lambda: fovea.attention(q, cache=cache[0]), "sequences"),
        (lambda: fovea.attention(q, cache=cache[0], sequences=[s, s]), "sequences"),
        (lambda: fovea.attention(q, cache=cache[0], sequences=[]), "sequences"),
        (lambda: fovea.attention(q, cache=cache[0], sequences=[other]), "sequences"),
        (lambda: fovea.attention(q, key, value, cache=cache[0], sequences=[s]), "key"),
        (lambda: fovea.attention(q, key, value, sequences=[s]), "sequences"),
        (lambda: fovea.attention(q.astype("f8"), cache=cache[0], sequences=[s]), "cache[0].dtype"),
        (lambda: fovea.attention(q, cache=cache[0], sequences=[s], query_offset=[1, 2]), "query_offset"),
        (lambda: fovea.attention(q, cache=cache[0], sequences=[s], key_starts=[0, 4]), "key_starts"),
    ):
        with pytest.raises(fovea.InvalidArgument) as caught:
            call()
        assert caught.value.argument == argument, caught.value
    with pytest.raises(TypeError, match="'key'"):
        fovea.attention(q)
    with pytest.raises(TypeError, match="'value'"):
        fovea.attention(q, key)
    with pytest.raises(IndexError):
        cache[1]
    for make in (pickle.dumps, copy.deepcopy):
        with pytest.raises(TypeError):
            make(cache)
    assert cache.length(s) == 4
    np.testing.assert_array_equal(cache.rows(0, s)[0], key)


def test_threads_use_sequences_of_one_cache(rng):
    cache = fovea.KvCache([layer(store=fovea.Paged(4))])
    common = cache.start()
    key, value = rows(rng, 10)
    add(cache, common, key, value)
    forks, wrong = [cache.fork(common) for _ in range(4)], []

    def work(own):
        for _ in range(30):
            add(cache, own, key[:, :, :3], value[:, :, :3])
            q = np.ones((1, 4, 1, DIM), np.float32)
            out = fovea.attention(q, cache=cache[0], sequences=[own], mask=fovea.Causal())
            if not np.isfinite(out).all():
                wrong.append(out)
            cache.truncate(own, 9)
            add(cache, own, key[:, :, 9:], value[:, :, 9:])

    threads = [threading.Thread(target=work, args=(own,)) for own in forks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    for own in forks:
        np.testing.assert_array_equal(cache.rows(0, own)[0], key)


# A call of the main thread has the pool, and asks for the interpreter's lock every 100 ms. A thread that waited for the
# pool with that lock would wait for ever.
def test_many_rows_are_written_and_read_beside_a_long_call():
    code = """
import threading, time
import numpy as np, fovea
fovea.set_num_threads(2)
long, x = (np.ones((1, 8, length, 64), np.float32) for length in (8192, 2048))
cache, rounds, ended = fovea.KvCache([fovea.CacheLayer(8, 64)]), [], threading.Event()
def work():
    while not ended.is_set():
        s = cache.start()
        cache.reserve(s, 2048)
        cache.append(0, s, x, x)
        cache.commit(s)
        assert (cache.rows(0, s)[1] == x).all()
        rounds.append(0)
thread = threading.Thread(target=work, daemon=True)
thread.start()
end = time.monotonic() + 1.5
while time.monotonic() < end:
    fovea.attention(long, long, long)
ended.set()
thread.join()
assert rounds
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_bf16_and_other_values(rng):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    half = ml_dtypes.bfloat16
    cache = fovea.KvCache([layer(dtype="bf16"), fovea.CacheLayer(1, DIM, 4, values="first_of_keys")])
    s = cache.start()
    key, value = rows(rng, 5)
    cache.reserve(s, 5)
    cache.append(0, s, key, value)
    cache.append(1, s, key[:, :1])
    cache.commit(s)
    got = cache.rows(0, s, like=key.astype(half))[0]
    np.testing.assert_array_equal(got.astype(np.float32), key.astype(half).astype(np.float32))
    with pytest.raises(fovea.InvalidArgument, match="like"):
        cache.rows(0, s)
    np.testing.assert_array_equal(cache.rows(1, s)[1], key[:, :1, :, :4])
    q = query(rng, 2)
    np.testing.assert_allclose(
        fovea.attention(q, cache=cache[1], sequences=[s]),
        fovea.attention(q, key[:, :1], key[:, :1, :, :4]),
        rtol=2e-5,
        atol=2e-6,
    )


def test_explain_says_what_runs_over_a_cache(rng):
    cache = fovea.KvCache([layer()])
    sequences = [cache.start(), cache.start()]
    for sequence, length in zip(sequences, (20, 500)):
        add(cache, sequence, *rows(rng, length))
    said = fovea.explain(query(rng, 1, batch=2), cache=cache[0], sequences=sequences, mask=fovea.Causal())
    assert "batch 2, heads 4/2, queries 1, keys 500, head_dim 8, value_dim 6, f32" in said
    # The first sequence sees one tile of four, the second sees all four.
    assert "38 % skipped" in said
    packed = fovea.explain(
        query(rng, 4), cache=cache[0], sequences=sequences, query_starts=[0, 3, 4], mask=fovea.Causal()
    )
    assert "batch 2, heads 4/2, queries 3, keys 500" in packed
    with pytest.raises(fovea.InvalidArgument, match="sequences"):
        fovea.explain(query(rng, 1), cache=cache[0], sequences=sequences)
    with pytest.raises(fovea.InvalidArgument, match="cache"):
        fovea.explain(query(rng, 1), cache=cache, sequences=sequences)
    with pytest.raises(fovea.InvalidArgument, match="key"):
        fovea.explain(query(rng, 1), rows(rng, 3)[0], cache=cache[0], sequences=sequences[:1])
