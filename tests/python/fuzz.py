"""Calls with random arguments: `python fuzz.py [SEED] [SECONDS]`. Each call gives a result or an intended exception:
InvalidArgument, or TypeError for arguments that a signature does not have."""

from __future__ import annotations

import random
import sys
import time
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

import fovea

_KINDS = (fovea.Score, fovea.Mod, fovea.Normalizer, fovea.Mask)
# Every value of the algebra that the package exports.
VALUES = [
    x
    for x in (getattr(fovea, name) for name in fovea.__all__)
    if isinstance(x, type) and issubclass(x, _KINDS) and x not in _KINDS
]
_NUMBERS = [0, 1, -1, 2, 3, 0.5, float("nan"), float("inf"), 2**31, 2**63 - 1, 2**63, -(2**63), 2**70, 1e300]
_OTHERS = [None, "", "abc", "f32", b"x", [], (), {}, object(), True, 1j, [1], [[1.0]], [None], range(4), lambda *a: True]


def _array(r: random.Random) -> Any:
    rank = r.choice([0, 1, 2, 3, 4, 4, 4, 4, 4, 5, 7])
    shape = tuple(r.choice([0, 1, 2, 2, 3, 4, 8]) for _ in range(rank))
    code = r.choice(["f4", "f4", "f4", "f8", "f2", "i4", "?", "c8", ">f4", "O", "U1", "u1"])
    x = np.ones(shape, code)
    twist = r.randrange(8)
    if twist == 0 and rank:
        x = x[..., ::-1]
    elif twist == 1:
        x = x.T
    elif twist == 2 and rank and code != "O":
        x = as_strided(x, shape, [r.choice([0, s, 2**62]) if n < 2 else 0 for n, s in zip(shape, x.strides)])
    elif twist == 3:
        x.flags.writeable = False
    elif twist == 4 and code in ("f4", "f8"):
        x = np.zeros(x.nbytes + 1, np.uint8)[1:].view(code).reshape(shape)
    return x


def _anything(r: random.Random, depth: int = 2) -> Any:
    kind = r.randrange(5 if depth else 3)
    if kind == 0:
        return _array(r)
    if kind == 1:
        return r.choice(_NUMBERS)
    if kind == 2:
        return r.choice(_OTHERS)
    if kind == 3:
        return _value(r, depth)
    return [_anything(r, depth - 1) for _ in range(r.randrange(4))]


def _value(r: random.Random, depth: int) -> Any:
    cls = r.choice(VALUES)
    try:
        return cls(*(_anything(r, depth - 1) for _ in range(r.randrange(4))))
    except (TypeError, ValueError):
        return cls


def _call(r: random.Random) -> Any:
    q = np.ones((1, 2, 3, 4), r.choice(["f4", "f8", "f2"]))
    three = [q if r.random() < 0.8 else _anything(r) for _ in range(3)]
    names = ["score", "mods", "mask", "normalizer", "scale", "dropout", "weight_mods", "weight_heads", "weight_rows"]
    names += ["query_offset", "seed", "out", "return_lse", "return_weights", "precision"]
    given: dict[str, Any] = {name: _anything(r) for name in r.sample(names, r.choice([0, 1, 1, 1, 2, 3]))}
    if "mods" in given and r.random() < 0.7:
        given["mods"] = [_value(r, 2) for _ in range(r.randrange(3))]
    kind = r.randrange(4)
    if kind == 0:
        return fovea.gradients(*three, _array(r) if r.random() < 0.3 else q, **given)
    if kind == 1:
        sizes = {name: r.choice([1, 2, 3, 4, *_NUMBERS]) for name in ("query_len", "head_dim", "num_query_heads")}
        spec = {name: given[name] for name in given if name in ("score", "mods", "mask", "normalizer", "scale")}
        return fovea.plan(**sizes, **spec)(*three)
    return fovea.attention(*three, **given)


def _cache_call(r: random.Random) -> Any:
    """Verbs on a small cache, each with a wrong argument now and then."""

    def maybe(x: Any) -> Any:
        return x if r.random() < 0.85 else _anything(r)

    store = maybe(r.choice([fovea.Paged(4), fovea.Contiguous(2), fovea.Ring(4, 1, 4)]))
    layer = fovea.CacheLayer(maybe(2), maybe(4), dtype=maybe(r.choice(["f32", "f64", "f16"])), store=store)
    state = fovea.CacheLayer(maybe(1), maybe(24), values=maybe("none"), store=fovea.LastRow())
    layers = [layer, state] if r.random() < 0.5 else [layer]
    cache = fovea.KvCache(maybe(layers), limit_bytes=maybe(1 << 20), prefix_bytes=maybe(1 << 12))
    sequences = [cache.start(maybe([1, 2, 3])), cache.start()]
    one: Any = lambda: maybe(r.choice(sequences))  # noqa: E731
    rows = np.ones((1, 2, 3, 4), np.float32)
    verbs: list[Any] = [
        lambda: cache.reserve(one(), maybe(3)),
        lambda: cache.append(maybe(0), one(), maybe(rows), maybe(rows)),
        lambda: cache.commit(one(), maybe(r.choice([None, [1, 2, 3]]))),
        lambda: cache.truncate(one(), maybe(2)),
        lambda: cache.keep(one(), maybe([0, 2])),
        lambda: cache.permute(maybe(sequences), maybe([1, 1])),
        lambda: sequences.append(cache.fork(one())) if len(sequences) < 3 else cache.release(one()),
        lambda: (cache.checkpoint(one()), cache.rollback(one()), cache.pending(maybe(0), one()), cache.bytes(one())),
        lambda: cache.find_prefix(maybe([1, 2, 3]), maybe(0)),
        lambda: cache.rows(maybe(0), maybe(sequences), maybe(None)),
        lambda: cache.replace(maybe(len(layers) - 1), one(), maybe(rows)),
        lambda: cache.last_row(maybe(len(layers) - 1), maybe(sequences), maybe(None)),
        lambda: fovea.attention(maybe(rows), cache=maybe(cache[0]), sequences=maybe([one()]), mask=maybe(fovea.Causal())),
    ]
    for _ in range(r.randrange(12)):
        try:
            r.choice(verbs)()
        except (fovea.InvalidArgument, fovea.CacheFull) as error:
            assert "std::" not in str(error), error


def main(seed: int = 0, seconds: float = 60) -> None:
    r = random.Random(seed)
    end, calls, good = time.monotonic() + seconds, 0, 0
    np.seterr(all="ignore")
    while time.monotonic() < end:
        state, calls = r.getstate(), calls + 1
        try:
            (_call if r.random() < 0.7 else _cache_call)(r)
            good += 1
        except fovea.InvalidArgument as error:
            assert "std::" not in str(error) and "expression, column" not in str(error), f"{state[1][-1]}: {error}"
        except TypeError as error:
            assert "unexpected keyword" in str(error) or "argument" in str(error), error
            assert "incompatible function" not in str(error), error
        except MemoryError:
            pass
    print(f"{calls} calls, {good} with a result")


if __name__ == "__main__":
    main(*(int(x) for x in sys.argv[1:]))
