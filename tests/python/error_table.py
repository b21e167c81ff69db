"""Everything that a caller may pass wrong: a row is a name, a call, and words that its error must contain. test_errors.py runs
each row in the tests' own process, and all rows once more in a process of their own, which must end normally."""

from __future__ import annotations

import sys
from typing import Any, Callable

import numpy as np
from numpy.lib.stride_tricks import as_strided

import fovea

Q = np.ones((1, 2, 4, 8), np.float32)
INF, NAN = float("inf"), float("nan")
CENTER = np.ones((1, 2, 4))


class Raises:
    """Has the interface of an array, but is none."""

    shape, dtype, device = (1, 2, 4, 8), np.dtype("f4"), "cpu"

    def __init__(self, error: type = RuntimeError) -> None:
        self.error = error

    def __dlpack__(self, **_: Any) -> Any:
        raise self.error("no")

    def __dlpack_device__(self) -> Any:
        return (1, 0)


class Lies(Raises):
    """Exports an array that differs from its own description."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack__(self, **kwargs: Any) -> Any:
        return self.array.__dlpack__(**kwargs)


class NoText:
    def __repr__(self) -> str:
        raise ValueError("no")


class Awkward(Raises):
    @property
    def dtype(self) -> Any:  # type: ignore[override]
        raise ValueError("no dtype")


def misaligned() -> Any:
    memory = np.zeros(Q.nbytes + 1, np.uint8)
    return memory[1:].view(np.float32).reshape(Q.shape)


def read_only() -> Any:
    array = Q.copy()
    array.flags.writeable = False
    return array


def huge_strides() -> Any:
    return as_strided(Q, (1, 2, 4, 8), (2**62, 2**62, 2**62, 4))


def overlapping() -> tuple[Any, Any]:
    memory = np.ones((2, 2, 4, 8), np.float32)
    return memory[:1], memory.reshape(-1)[8 : 8 + 64].reshape(1, 2, 4, 8)


def call(**changes: Any) -> Callable[[], Any]:
    def run() -> Any:
        given = {"query": Q, "key": Q, "value": Q, **changes}
        return fovea.attention(given.pop("query"), given.pop("key"), given.pop("value"), **given)

    return run


def gradients(**changes: Any) -> Callable[[], Any]:
    def run() -> Any:
        given = {"query": Q, "key": Q, "value": Q, "d_output": Q, **changes}
        return fovea.gradients(*[given.pop(n) for n in ("query", "key", "value", "d_output")], **given)

    return run


def planned(**changes: Any) -> Callable[[], Any]:
    return lambda: fovea.plan(**{"query_len": 4, "head_dim": 8, **changes})


def stepped(*arrays: Any, **changes: Any) -> Callable[[], Any]:
    return lambda: fovea.plan(num_query_heads=2, query_len=4, head_dim=8)(*(arrays or (Q, Q, Q)), **changes)


def mod(value: Any, **more: Any) -> Callable[[], Any]:
    return call(mods=[value], **more)


Row = tuple[str, Callable[[], Any], str]

_DTYPES = ["i4", "u1", "?", "c8", "c16", ">f4", ">f8", "O", "U3", "S3", "M8[s]", "g"]
ARRAYS: list[Row] = [
    *((f"{which} of {code}", call(**{which: Q.astype(code)}), which) for which in ("query", "key", "value") for code in _DTYPES),
    *(
        (f"{which} of {rank} axes", call(**{which: np.ones((1,) * rank, np.float32)}), which)
        for which in ("query", "key", "value")
        for rank in (0, 1, 2, 3, 5, 6, 7, 32)
    ),
    *(
        (f"{which} is {type(x).__name__}", call(**{which: x}), which)
        for which in ("query", "key", "value")
        for x in (3, 2.5, "q", b"q", [[[[1.0]]]], (1,), {}, object(), NoText(), np.float32, Q.shape, memoryview(b"12"), sys)
    ),
    ("query None", call(query=None), "query"),
    ("key None", call(key=None), "key"),
    ("key and value None", call(key=None, value=None), "key"),
    ("structured", call(query=np.zeros((1, 2, 4, 8), [("a", "f4")])), "query"),
    ("masked array", call(query=np.ma.masked_array(Q, Q > 0)), "query"),
    ("masked key", call(key=np.ma.masked_array(Q, Q > 0)), "key"),
    ("matrix", call(query=np.asmatrix(Q[0, 0])), "query"),
    ("misaligned query", call(query=misaligned()), "aligned"),
    ("misaligned key", call(key=misaligned()), "key"),
    ("huge strides", call(query=huge_strides()), "query: expected strides"),
    ("huge strides of keys", call(key=huge_strides()), "key"),
    ("huge strides of out", call(out=huge_strides()), "out"),
    ("raises", call(query=Raises()), "query"),
    ("raises BufferError", call(key=Raises(BufferError)), "key"),
    ("raises MemoryError", call(value=Raises(MemoryError)), "value"),
    ("lies about its shape", call(query=Lies(np.ones((7, 1), np.float32))), "query"),
    ("lies about its dtype", call(key=Lies(Q.astype("f8"))), "key"),
    ("lies about being real", call(key=Lies(Q.astype("c8"))), "key"),
    ("of no dtype", call(query=Awkward()), "query"),
    ("key of another dtype", call(key=Q.astype("f8")), "key"),
    ("value of another dtype", call(value=Q.astype("f2")), "value"),
    ("3 kv heads", call(key=np.ones((1, 3, 4, 8), np.float32)), "num_kv_heads"),
    ("kv heads differ", call(value=Q[:, :1]), "value"),
    ("batches differ", call(key=np.ones((2, 2, 4, 8), np.float32)), "key"),
    ("lengths differ", call(value=np.ones((1, 2, 5, 8), np.float32)), "value"),
    ("dims differ", call(key=np.ones((1, 2, 4, 7), np.float32)), "key"),
    ("dim 0", call(query=Q[..., :0], key=Q[..., :0]), "head_dim"),
    ("no heads", call(query=Q[:, :0]), "num_query_heads"),
    ("no kv heads", call(key=Q[:, :0], value=Q[:, :0]), "num_kv_heads"),
    ("value_dim 0", call(value=Q[..., :0]), "value"),
]

OUTPUTS: list[Row] = [
    ("out 3", call(out=3), "out"),
    ("out list", call(out=[[1.0]]), "out"),
    ("out of another shape", call(out=np.ones((1, 2, 4, 7), np.float32)), "out"),
    ("out of another rank", call(out=np.ones(64, np.float32)), "out"),
    ("out of another dtype", call(out=Q.astype("f8")), "out"),
    ("out of int", call(out=Q.astype("i4")), "out"),
    ("out read-only", call(out=read_only()), "out: expected a writable"),
    ("out is query", call(out=Q), "out: expected memory apart"),
    ("out is value", lambda: fovea.attention(Q.copy(), Q.copy(), Q, out=Q), "out: expected memory apart"),
    ("out overlaps", lambda: fovea.attention(overlapping()[0], Q, Q, out=None) is None or _overlap(), "out: expected memory apart"),
    ("out strided within", call(out=np.ones((1, 2, 4, 16), np.float32)[..., ::2]), "out"),
    ("out misaligned", call(out=misaligned()), "out"),
    ("out lies", call(out=Lies(np.ones((2, 2), np.float32))), "out"),
    ("out without values", lambda: fovea.attention(Q, Q, None, out=Q.copy()), "out"),
    ("out of stride 0", call(out=as_strided(Q.copy(), Q.shape, (0, 0, 0, 4))), "out"),
]


def _overlap() -> Any:
    query, out = overlapping()
    return fovea.attention(query, Q, Q, out=out)


NUMBERS: list[Row] = [
    *((f"scale {x!r}", call(scale=x), "scale") for x in ("x", "1", NAN, INF, -INF, [1], 1j, 10**400, np.ones(2), object(), True)),
    *((f"dropout {x!r}", call(dropout=x), "dropout") for x in ("a", -0.1, 1, 1.5, NAN, INF, None, np.ones(3), 10**400)),
    *((f"precision {x!r}", call(precision=x), "precision") for x in ("x", "FULL", [1], None, 1)),
    *((f"seed {x!r}", call(seed=x), "seed") for x in (-1, 2**64, 2**70, 1.5, "a", [1], True)),
    *((f"query_offset {x!r}", call(query_offset=x), "query_offset") for x in (2**70, 2**62, -(2**63), 1.5, "a", True, [0, 1, 2], [], "0")),
    ("query_offset of a predicate", call(query_offset=2**70, mask=lambda b, h, i, j: i >= j), "query_offset"),
    *(
        (f"{which} {x!r}", call(return_weights=True, **{which: x}), which)
        for which in ("weight_heads", "weight_rows")
        for x in ([9], [-1], 3, [2**70], [1.5], "ab", [], [None], [[0]], np.ones((2, 2), int))
    ),
]

PARAMETERS: list[Row] = [
    *((f"score {x!r}"[:40], call(score=x), "score") for x in ("dot", 3, fovea.Dot, fovea.SoftCap(1), fovea.Softmax(), [])),
    ("W of another shape", call(score=fovea.Bilinear(np.ones((3, 3)))), "score.W"),
    ("W None", call(score=fovea.Bilinear(None)), "score.W"),
    ("W 3", call(score=fovea.Bilinear(3)), "score.W"),
    ("W text", call(score=fovea.Bilinear("abc")), "score.W"),
    ("W ragged", call(score=fovea.Bilinear([[1], [1, 2]])), "score.W"),
    ("W complex", call(score=fovea.Bilinear(np.ones((8, 8), complex))), "score.W"),
    ("v None", call(score=fovea.Additive(np.ones((5, 8)), np.ones((5, 8)), None)), "score.v"),
    ("v of another length", call(score=fovea.Additive(np.ones((5, 8)), np.ones((5, 8)), np.ones(4))), "score.W"),
    ("b of another length", call(score=fovea.Additive(None, None, np.ones(8), np.ones(3))), "score.b"),
    ("w of another length", call(score=fovea.Coverage(np.ones((5, 8)), np.ones((5, 8)), np.ones(5), np.ones(4))), "score.w"),
    ("concat of one column", call(score=fovea.Concat(np.ones((5, 1)), np.ones(5))), "score."),
    ("concat 3", call(score=fovea.Concat(3, 4)), "score."),
    ("concat text", call(score=fovea.Concat("abc", np.ones(5))), "score.W"),
    ("concat of uneven rows", call(score=fovea.Concat([[1.0], [1.0, 2.0]], np.ones(2))), "score.W"),
    ("low rank None", call(score=fovea.LowRankBilinear(None, None)), "score.W"),
    ("location with keys", call(score=fovea.Location(np.ones((4, 8)))), "key"),
    ("location of few rows", call(key=None, score=fovea.Location(np.ones((3, 8)))), "score.W"),
    ("location 3", call(key=None, value=None, score=fovea.Location(3)), "score.W"),
    *((f"normalizer {x!r}"[:40], call(normalizer=x), "normalizer") for x in ("softmax", 3, fovea.Softmax, fovea.Causal(), [])),
    *((repr(fovea.Entmax(x)), call(normalizer=fovea.Entmax(x)), "alpha") for x in (5, 1, 0, -1, "a", NAN, INF, None)),
    *((repr(fovea.GumbelSample(x)), call(normalizer=fovea.GumbelSample(x)), "temperature") for x in (0, -1, "a", NAN)),
    *((repr(fovea.Sigmoid(x)), call(normalizer=fovea.Sigmoid(x)), "bias") for x in (NAN, INF, None, "a", [1])),
    *((f"sink {n}", call(normalizer=fovea.SoftmaxWithSink(x)), "sink") for n, x in enumerate((np.ones(3), 1.0, None, "a", np.ones((1, 2))))),
    *((f"scale {n}", call(normalizer=fovea.ScalableSoftmax(x)), "scale") for n, x in enumerate((np.ones(3), 1.0, None, "a", np.ones((1, 2))))),
    *((f"transitions {n}", call(normalizer=fovea.LinearChain(x)), "transitions") for n, x in enumerate((np.ones((3, 3)), [[NAN, 1], [1, 1]], 1, None)))
    ,
    ("nine mods", call(mods=[fovea.SoftCap(1)] * 9), "mods"),
    ("nine weight mods", call(weight_mods=[fovea.SoftCap(1)] * 9), "weight_mods"),
    *((f"mods {x!r}"[:40], call(mods=x), "mods") for x in (3, [3], fovea.SoftCap, [fovea.SoftCap], "ab", [fovea.Causal()], [None], None)),
    *((repr(fovea.SoftCap(x))[:40], mod(fovea.SoftCap(x)), "cap") for x in (0, -1, "a", NAN, INF, None, 1e-400, 10**400, np.ones(2), True)),
    *((repr(fovea.Temperature(x)), mod(fovea.Temperature(x)), "value") for x in (0, -1, NAN)),
    ("table 3", mod(fovea.RelativeBias(3)), "table"),
    ("table []", mod(fovea.RelativeBias([])), "table"),
    ("table None", mod(fovea.RelativeBias(None)), "table"),
    ("table of 2 buckets", mod(fovea.RelativeBias([1.0, 2.0])), "buckets"),
    ("max_distance 0", mod(fovea.RelativeBias(np.ones(8), 0)), "max_distance"),
    ("max_distance -1", mod(fovea.RelativeBias(np.ones(8), -1)), "max_distance"),
    ("max_distance 2**80", mod(fovea.RelativeBias(np.ones(8), 2**80)), "max_distance"),
    ("direction", mod(fovea.RelativeBias(np.ones(8), 16, "x")), "direction"),
    ("table of 3 heads", mod(fovea.RelativeBias(np.ones((3, 32)))), "table"),
    ("table of 4 axes", mod(fovea.RelativeBias(np.ones((1, 1, 2, 32)))), "table"),
    ("even table", mod(fovea.RelativeKeyBias(np.ones(4))), "table"),
    *((f"slopes {n}", mod(fovea.AlibiBias(x)), "slope") for n, x in enumerate((None, "ab", [1, 2, 3], np.ones((1, 2)), [[1], [1, 2]], object(), 1j, np.ones(0), Raises())))
    ,
    *((f"bias {n}", mod(fovea.DenseBias(x)), "bias") for n, x in enumerate((np.ones((2, 2)), np.ones((1,) * 5), np.ones((4, 4), complex), np.zeros((4, 4), "U2"), np.zeros((4, 4), "M8[s]"))))
    ,
    ("gates of another length", mod(fovea.ForgetGate(np.ones((1, 2, 3)), np.ones((1, 2, 4)))), "mods[0].query"),
    ("reach -1", mod(fovea.LocalWindow(-1, CENTER)), "reach"),
    ("center of 7 entries", mod(fovea.LocalWindow(1, np.ones((7, 2, 4)))), "center"),
    ("deviation 0", call(weight_mods=[fovea.LocalGaussian(0, CENTER)]), "deviation"),
    ("alibi_slopes(-1)", lambda: fovea.alibi_slopes(-1), "num_heads"),
    ("alibi_slopes(0)", lambda: fovea.alibi_slopes(0), "alibi_slopes: num_heads: expected a number in [1, 1048576], got 0"),
    ("alibi_slopes(2**62)", lambda: fovea.alibi_slopes(2**62), "num_heads"),
    ("ForgetGate of a list", lambda: fovea.ForgetGate.of([0.0, -1.0]), "ForgetGate.of: log_f: expected an array"),
    ("alibi_slopes(2**70)", lambda: fovea.alibi_slopes(2**70), "num_heads"),
    ("alibi_slopes('a')", lambda: fovea.alibi_slopes("a"), "num_heads"),  # type: ignore[arg-type]
]


def _deep() -> Any:
    mask: Any = fovea.Causal()
    for _ in range(2000):
        mask = mask & fovea.Causal() if _ % 2 else ~mask
    return call(mask=mask)()


def _mask(value: Any, says: str) -> Row:
    return repr(value)[:50], call(mask=value), says


MASKS: list[Row] = [
    *(_mask(x, "mask") for x in (fovea.Causal, 3, "causal", [[True]], {}, Q[..., :4].astype("i4"), Q[..., :4].astype("c8"))),
    *(_mask(np.ones(shape, bool), "mask") for shape in ((3, 3), (2, 4, 5), (1,) * 5, (5, 1, 1, 1), (0, 4))),
    ("mask of 3 x 3 numbers", call(mask=np.ones((3, 3))), "bias"),
    ("mask of 5 axes", call(mask=np.ones((1,) * 5)), "bias"),
    *(_mask(fovea.ArrayMask(x), "mask") for x in ([[1]], np.ones((3, 3), bool), np.ones((4, 4)), None, "a")),
    *(_mask(fovea.SlidingWindow(x), "lookback") for x in (-1, 1.5, "a", 2**63, True)),
    *(_mask(fovea.Documents(x), "boundaries") for x in ([0, 3, 2], [[0]], 3, "ab", [0, 2**63], None, [-1, 4])),
    *(_mask(fovea.Chunked(x), "size") for x in (0, -1, 2**70, None)),
    *(_mask(fovea.Strided(x), "stride") for x in (0, -1, 1.0)),
    _mask(fovea.Dilated(1, 1, 0), "step"),
    *(_mask(fovea.KeyLengths(x), "lengths") for x in ([1, 2], [9], [-1], None, [1.5], "a", 3, [2**70])),
    *(_mask(fovea.Prefix(x), "prefix" if x == [1, 2, 3] else "lengths") for x in ([1, 2, 3], "abc", -1, None, 1.5)),
    *(_mask(fovea.Tree(x), "parents") for x in ([1], [0, 5], [0, -1], None)),
    _mask(fovea.GlobalTokens([-4]), "positions"),
    *(_mask(fovea.BlockTable(2, x), "visible") for x in ([[1], [1, 2]], 3, None)),  # type: ignore[arg-type]
    _mask(fovea.BlockTable(0, [[True]]), "size"),
    *(_mask(fovea.BigBird(8, 4, seed=x), "seed") for x in (-1, 2**64, None)),
    _mask(fovea.BigBird(-1), "length"),
    _mask(fovea.BigBird(2**40, 1), "length"),
    _mask(fovea.Groups([0, "a"]), "groups"),  # type: ignore[list-item]
    _mask(fovea.StreamingSinks(-1), "count"),
    _mask(fovea.Predicate(3), "visible"),  # type: ignore[arg-type]
    _mask(fovea.Predicate(lambda b, h, i, j: 1.0), "visible"),
    _mask(fovea.Predicate(lambda b, h, i, j: np.ones((3, 3), bool)), "visible"),
    _mask(fovea.Predicate(lambda b, h, i, j: None), "visible"),
    _mask(fovea.Predicate(lambda b, h, i, j: np.ones((1,) * 5, bool)), "visible"),
    _mask(fovea.Predicate(lambda b, h, i, j: [[1], [1, 2]]), "visible"),
    ("2000 deep", _deep, "levels"),
    ("And of 3", lambda: fovea.masks.And(fovea.Causal(), 3), "mask of fovea"),  # type: ignore[arg-type]
    ("Not of 3", lambda: fovea.masks.Not(3), "mask of fovea"),  # type: ignore[arg-type]
]

PLANS: list[Row] = [
    *((f"plan head_dim {x!r}", planned(head_dim=x), "head_dim") for x in (0, -1, 1.5, "a", None, 2**62, 2**70)),
    *(
        (f"plan {name} {x!r}", planned(**{name: x}), name)
        for name in ("query_len", "key_len", "batch", "num_query_heads")
        for x in (-1, 1.5, "a", 2**70)
    ),
    *(
        (f"predicate of {name} {x}", planned(mask=lambda b, h, i, j: (b + h + i) >= j, **{name: x}), "visible")
        for name in ("query_len", "key_len", "batch", "num_query_heads")
        for x in (2**29, 2**30)
    ),
    ("plan 3 kv heads", planned(num_query_heads=4, num_kv_heads=3), "plan: num_kv_heads"),
    ("plan value_dim -1", planned(value_dim=-1), "value_dim"),
    *((f"plan dtype {x!r}", planned(dtype=x), "dtype") for x in ("f3", "float32", 3, None, np.float32)),
    *((f"plan kernel {x!r}", planned(kernel=x), "kernel") for x in ("fast", 3, None)),
    ("plan mods", planned(mods=[3]), "mods[0]"),
    ("plan a cap behind a window", planned(mods=[fovea.LocalWindow(2, [0.0]), fovea.SoftCap(5)]), "mods[1]"),
    ("plan scale", planned(scale=NAN), "plan: scale"),
    ("plan offset", planned(query_offset=2**70), "query_offset"),
    ("plan of a ragged mask", planned(mask=np.ones((3, 3), bool)), "mask"),
    *((f"return_lse {x!r}", call(return_lse=x), "return_lse: expected True or False") for x in ("no", np.ones(2))),
    ("explain key and value of other lengths", lambda: fovea.explain(Q, Q, Q[:, :, :2]), "explain: value: expected f32 [1, 2, 4, dim], got float32 [1, 2, 2, 8]"),
    ("explain key of another dtype", lambda: fovea.explain(Q, Q.astype("f8"), Q), "explain: key: expected f32"),
    ("explain_recurrence of other lengths", lambda: fovea.explain_recurrence(Q, Q, Q[:, :, :2]), "explain_recurrence: value: expected f32 [1, heads, 4, dim]"),
    ("lengths that no call brings", call(mask=fovea.Causal() & fovea.KeyLengths()), "mask: expected lengths in its KeyLengths(lengths)"),
    ("gradients of lengths that no call brings", gradients(mask=fovea.KeyLengths()), "gradients: mask: expected lengths in its KeyLengths(lengths)"),
    ("a step without its lengths", lambda: fovea.plan(num_query_heads=2, query_len=4, head_dim=8, mask=fovea.KeyLengths())(Q, Q, Q), "key_lengths: expected as many lengths"),
    ("a prefix of no lengths", call(mask=fovea.Prefix([])), "Prefix: lengths: expected a number, or one for each batch entry, got none"),
    ("offset of a plan's explain", lambda: planned()().explain("a"), "Plan.explain: query_offset"),
    ("step longer", stepped(np.ones((1, 2, 5, 8), np.float32), Q, Q), "query"),
    ("step of more heads", stepped(np.ones((1, 4, 4, 8), np.float32), Q, Q), "query"),
    ("step of another dtype", stepped(Q.astype("f8"), Q.astype("f8"), Q.astype("f8")), "query"),
    ("step of None", stepped(None, None, None), "query"),
    ("step lengths unasked", stepped(key_lengths=[1]), "key_lengths"),
    ("step lengths of text", stepped(key_lengths="a"), "key_lengths"),
    ("step lengths of 2**70", stepped(key_lengths=[2**70]), "key_lengths"),
    ("step out", stepped(out=3), "out"),
    ("step seed", stepped(seed=-1), "seed"),
    ("step rows", stepped(weight_rows=[7], return_weights=True), "weight_rows"),
    ("explain text", lambda: fovea.explain("q", "k", "v"), "explain: query"),
    ("gradients text", gradients(query="q"), "gradients: query"),
    ("explain offset", lambda: fovea.explain(Q, Q, Q, query_offset=2**70), "query_offset"),
    *((f"set_num_threads({x!r})", lambda x=x: fovea.set_num_threads(x), "threads") for x in (0, -1, 2**20, 2**70, 1.5, "a", None, True)),
    ("d_output of another shape", gradients(d_output=Q[:, :, :2]), "d_output"),
    ("d_output of another dtype", gradients(d_output=Q.astype("f8")), "d_output"),
    ("d_output 3", gradients(d_output=3), "d_output"),
    ("d_output None", gradients(d_output=None), "d_output"),
    ("d_weights of another shape", gradients(d_weights=np.ones((1, 2, 4, 3), np.float32)), "d_weights"),
    ("advantage without samples", gradients(advantage=np.ones((1, 2, 4), np.float32)), "advantage"),
    ("sample without advantage", gradients(normalizer=fovea.HardSample(), seed=1), "advantage"),
]

COS = np.ones((9, 4))


def rotated(*arguments: Any, x: Any = Q, **more: Any) -> Callable[[], Any]:
    return lambda: fovea.rotate(x, *(arguments or (fovea.Rope(8),)), **more)


def by_tables(cos: Any = COS, sin: Any = COS, **more: Any) -> Callable[[], Any]:
    return lambda: fovea.rotate(Q, fovea.RopeTables(cos, sin), **more)


# The error's "got" is the value that was passed.
ROPES: list[Row] = [
    ("position 2**30", rotated(positions=2**30), "below 134217728, all of which a table holds, got 1073741824 and the 3 after it"),
    ("positions of a list beyond", rotated(positions=[0, 2**30, 1, 2]), "got 1073741824"),
    ("position -1", rotated(positions=-1), "positions of at least 0, got -1"),
    ("position -3 of a list", rotated(positions=[0, 1, -3, 2]), "positions of at least 0, got -3"),
    ("positions of another length", rotated(positions=[0, 1]), "a number, [4] or [1, 4], got [2]"),
    ("ragged positions", rotated(positions=[[0, 1], [2]]), "positions"),
    ("position 1.5", rotated(positions=1.5), "a whole number, got 1.5"),
    ("sequence_len 4 behind 5", rotated(positions=5, sequence_len=4), "sequence_len: expected a number in [9, 134217728], above every position, got 4"),
    ("sequence_len 2**40", rotated(sequence_len=2**40), "got 1099511627776"),
    ("sequence_len -1", rotated(sequence_len=-1), "got -1"),
    ("odd rotary_dim", rotated(fovea.Rope(7)), "Rope: rotary_dim: expected an even number in [2, 65536], got 7"),
    ("interleaved text", rotated(fovea.Rope(8, interleaved="half")), "Rope: interleaved: expected True or False, got 'half'"),  # type: ignore[arg-type]
    ("interleaved text of tables", lambda: fovea.rotate(Q, fovea.RopeTables(COS, COS, "no")), "RopeTables: interleaved"),  # type: ignore[arg-type]
    ("no rope", rotated(3), "a fovea.Rope or fovea.RopeTables, got 3"),
    ("rotate of int", rotated(x=Q.astype("i4")), "rotate: x"),
    ("rotate of 3 axes", rotated(x=Q[0]), "rotate: x: expected [batch, heads, length, head_dim], got [2, 4, 8]"),
    ("cos of 1 axis", by_tables(COS[0]), "rotate: cos: expected [positions, n]"),
    ("cos of every number twice", by_tables(np.ones((9, 8)), np.ones((9, 8))), "(cos[..., : 4]: each number once), got float32 [9, 8]"),
    ("cos of 2 batch entries", by_tables(np.ones((2, 9, 4)), np.ones((2, 9, 4))), "rotate: cos: expected [positions, n] or [1, positions, n]"),
    ("cos of no columns", by_tables(COS[:, :0], COS[:, :0]), "rotate: cos"),
    ("cos text", by_tables("a"), "rotate: cos: expected an array of numbers, got str"),
    ("sin None", by_tables(sin=None), "rotate: sin: expected an array of numbers, got NoneType"),
    ("sin of another shape", by_tables(sin=COS[:, :3]), "rotate: sin: expected [9, 4], the shape of cos, got float32 [9, 3]"),
    ("position behind the tables", by_tables(positions=6), "positions in [0, 9), those of the table, got 6 and the 3 after it"),
    ("listed position behind the tables", by_tables(positions=[0, 1, 2, 9]), "got 9"),
    ("sequence_len of tables", by_tables(sequence_len=9), "sequence_len: expected None: the tables have their own length, got 9"),
]

TEXTS: list[Row] = [
    ("rows of weights unasked", call(weight_rows=[1]), "weight_rows: expected None without return_weights=True, got [1]"),
    ("heads of weights unasked", call(weight_heads=[0, 1]), "weight_heads: expected None without return_weights=True, got [0, 1]"),
    ("step rows unasked", stepped(weight_rows=[1]), "weight_rows: expected None without return_weights=True, got [1]"),
    ("dropout as it came", call(dropout=-0.1), "got -0.1"),
    ("seed as it came", call(seed=2**64), "seed: expected a number in [0, 2^64), got 18446744073709551616"),
    ("kernel as it is called", planned(kernel="fast"), "plan: kernel: expected one of"),
    ("strides in elements", call(query=huge_strides()), "a stride of 1152921504606846976 elements"),
    ("lengths by batch entry", call(mask=fovea.KeyLengths([1, 2])), "as many lengths as batch entries, 1, got 2"),
    ("a table of no columns", call(mask=fovea.BlockTable(2, [])), "BlockTable: columns: expected"),
    ("far too many blocks", call(mask=fovea.BigBird(2**40, 1)), "BigBird: length / size: expected a number in [0, 16384]"),
]



def recurrence(**changes: Any) -> Callable[[], Any]:
    def run() -> Any:
        given = {"query": Q, "key": Q, "value": Q, **changes}
        return fovea.recurrence(given.pop("query"), given.pop("key"), given.pop("value"), **given)

    return run


def recurrence_gradients(**changes: Any) -> Callable[[], Any]:
    def run() -> Any:
        given = {"query": Q, "key": Q, "value": Q, "d_output": Q, **changes}
        return fovea.recurrence_gradients(*[given.pop(n) for n in ("query", "key", "value", "d_output")], **given)

    return run


GATE, STATE = np.full((1, 2, 4), -0.5), np.ones((1, 2, 8, 8), np.float32)
_recurrence_arrays = ("query", "key", "value")
RECURRENCES: list[Row] = [
    *((f"recurrence, {which} of {code}", recurrence(**{which: Q.astype(code)}), which) for which in _recurrence_arrays for code in _DTYPES),
    *(
        (f"recurrence, {which} of {rank} axes", recurrence(**{which: np.ones((1,) * rank, np.float32)}), which)
        for which in _recurrence_arrays
        for rank in (0, 3, 5, 32)
    ),
    *(
        (f"recurrence, {which} is {type(x).__name__}", recurrence(**{which: x}), which)
        for which in _recurrence_arrays
        for x in (3, "q", [[[[1.0]]]], object(), NoText(), np.float32, Raises())
    ),
    ("recurrence without a query", recurrence(query=None), "query: expected an array, or return_state"),
    ("recurrence without a key", recurrence(key=None), "key"),
    ("recurrence, out without a query", recurrence(query=None, return_state=True, out=Q.copy()), "out"),
    ("recurrence, masked key", recurrence(key=np.ma.masked_array(Q, Q > 0)), "key"),
    ("recurrence, huge strides", recurrence(value=huge_strides()), "value: expected strides"),
    ("recurrence, other dim", recurrence(query=Q[..., :4].copy()), "query: expected a key_dim of 8"),
    ("recurrence, 3 key heads", recurrence(key=np.ones((1, 3, 4, 8), "f4")), "num_key_heads: expected a divisor"),
    ("recurrence, other length", recurrence(value=Q[:, :, :3]), "value: expected f32 [1, 2, 4, 8]"),
    ("recurrence, other batch", recurrence(query=np.ones((2, 2, 4, 8), "f4")), "query"),
    ("recurrence, no dim", recurrence(query=Q[..., :0], key=Q[..., :0]), "key_dim"),
    ("gate above 0", recurrence(decay=fovea.ScalarDecay(-GATE)), "decay.log_decay: expected logarithms of decays, at most 0"),
    ("gate of other shape", recurrence(decay=fovea.KeyDecay(GATE)), "decay.log_decay: expected f32 [1, 2, 4, 8]"),
    ("gate of a text", recurrence(decay=fovea.ScalarDecay("g")), "decay.log_decay"),
    ("gate None", recurrence(decay=fovea.ScalarDecay(None)), "decay.log_decay"),
    ("gate a class", recurrence(decay=fovea.NoDecay), "decay: expected a value, fovea.NoDecay(...)"),
    ("a base class's value", recurrence(decay=fovea.Decay()), "decay: expected a Decay of fovea"),
    ("decay as write", recurrence(write=fovea.NoDecay()), "write: expected a Write of fovea"),
    ("decay a number", recurrence(decay=-0.5), "decay"),
    ("feature map a text", recurrence(feature_map="elu"), "feature_map"),
    ("softmax as normaliser", recurrence(normalizer=fovea.Softmax()), "normalizer: expected a StateNormalizer"),
    ("DeltaWrite()", lambda: fovea.DeltaWrite(), "beta: expected an array, or one for erase"),
    ("beta of other shape", recurrence(write=fovea.DeltaWrite(GATE[:, :, :2])), "write.beta: expected f32 [1, 2, 4]"),
    ("erase a list", recurrence(write=fovea.DeltaWrite(erase=Q.tolist())), "write.erase"),
    ("erase f64", recurrence(write=fovea.DeltaWrite(erase=Q.astype("f8"))), "write.erase: expected f32"),
    ("a of other heads", recurrence(write=fovea.DiagonalPlusLowRankWrite(Q[:, :1], Q)), "write.a"),
    ("bonus of other shape", recurrence(read=fovea.BeforeDecay(np.ones(8))), "read.bonus: expected f32 [2, 8]"),
    ("self_weight of other shape", recurrence(read=fovea.SelfWeight(np.ones(8))), "read.self_weight"),
    ("epsilon < 0", recurrence(normalizer=fovea.KeySum(-1.0)), "normalizer: expected an epsilon"),
    ("epsilon a text", lambda: fovea.KeySum("1"), "epsilon"),  # type: ignore[arg-type]
    ("recurrence, scale a text", recurrence(scale="1"), "scale"),
    ("recurrence, scale NaN", recurrence(scale=NAN), "scale: expected a finite number"),
    ("state of other columns", recurrence(initial_state=STATE, normalizer=fovea.KeySum()), "initial_state: expected f32 [1, 2, 8, 9]"),
    ("state None of", recurrence(initial_state="s"), "initial_state"),
    ("final state of other shape", recurrence(final_state=STATE[:, :1].copy()), "final_state"),
    ("final state f64", recurrence(final_state=STATE.astype("f8")), "final_state"),
    ("final state read-only", recurrence(final_state=read_only()), "final_state"),
    ("out of other shape", recurrence(out=Q[..., :4].copy()), "out"),
    ("out is the query", lambda: (lambda q: recurrence(query=q, out=q))(Q.copy())(), "out"),
    ("starts of nothing", recurrence(sequence_starts=[]), "sequence_starts"),
    ("starts not to the end", recurrence(sequence_starts=[0, 3]), "sequence_starts: expected numbers that ascend from 0 to the 4 rows"),
    ("starts not from 0", recurrence(sequence_starts=[1, 4]), "sequence_starts"),
    ("starts descend", recurrence(sequence_starts=[0, 3, 2, 4]), "sequence_starts: expected numbers that ascend"),
    ("starts far away", recurrence(sequence_starts=[0, 1 << 62, 4]), "sequence_starts"),
    ("starts below 0", recurrence(sequence_starts=[0, -(1 << 62), 4]), "sequence_starts"),
    ("starts of numbers with points", recurrence(sequence_starts=[0, 4.0]), "sequence_starts"),
    ("starts of a text", recurrence(sequence_starts="04"), "sequence_starts"),
    (
        "starts beside a batch",
        recurrence(query=np.ones((2, 2, 4, 8), "f4"), key=np.ones((2, 2, 4, 8), "f4"), value=np.ones((2, 2, 4, 8), "f4"), sequence_starts=[0, 4]),
        "key: expected a batch of 1",
    ),
    ("present of floats", recurrence(present=np.ones((1, 4))), "present: expected an array of truth values"),
    ("present of other shape", recurrence(present=np.ones((4,), bool)), "present: expected truth values of [batch, length]"),
    ("present a text", recurrence(present="1111"), "present"),
    ("present raises", recurrence(present=NoText()), "present"),
    ("return_state an array", recurrence(return_state=Q), "return_state"),
    ("d_output None", recurrence_gradients(d_output=None), "d_output"),
    ("d_output of other shape", recurrence_gradients(d_output=Q[..., :4].copy()), "d_output"),
    ("d_final_state of other shape", recurrence_gradients(d_final_state=Q), "d_final_state"),
    ("gradients of a gate above 0", recurrence_gradients(decay=fovea.ScalarDecay(-GATE)), "recurrence_gradients: decay.log_decay"),
    ("gradients of a bad key", recurrence_gradients(key=3), "recurrence_gradients: key"),
    ("explain_recurrence of a bad key", lambda: fovea.explain_recurrence(Q, 3, Q), "explain_recurrence: key"),
]

X, TAPS = np.ones((1, 5, 4)), np.ones((4, 3))
PAIR = (Q, np.zeros((1, 2, 4), np.float32))


def hidden(array: Any) -> Any:
    return np.ma.masked_array(array, np.ones_like(array, bool))


MASKED: list[Row] = [
    ("masked mask", call(mask=hidden(np.ones((4, 4), bool))), "mask: expected an array without a mask"),
    ("masked additive mask", call(mask=hidden(np.ones((4, 4)))), "mask: expected an array without a mask"),
    ("masked ArrayMask", call(mask=fovea.Causal() & fovea.ArrayMask(hidden(np.ones((4, 4), bool)))), "mask: expected an array without a mask"),
    ("masked slopes", mod(fovea.AlibiBias(hidden(np.ones(2)))), "mods[0].slope: expected an array without a mask"),
    ("masked slopes f32", mod(fovea.AlibiBias(hidden(np.ones(2, np.float32)))), "mods[0].slope: expected an array without a mask"),
    ("masked W", call(score=fovea.Bilinear(hidden(np.eye(8)))), "score.W: expected an array without a mask"),
    ("masked d_output", gradients(d_output=hidden(Q)), "gradients: d_output: expected an array without a mask"),
    ("masked out", call(out=hidden(Q.copy())), "out: expected an array without a mask"),
    ("step masked out", stepped(out=hidden(Q.copy())), "out: expected an array without a mask"),
    ("masked x of rotate", rotated(x=hidden(Q)), "rotate: x: expected an array without a mask"),
    ("masked cos", by_tables(hidden(COS)), "rotate: cos: expected an array without a mask"),
    ("recurrence, masked value", recurrence(value=hidden(Q)), "value: expected an array without a mask"),
    ("recurrence, masked gate", recurrence(decay=fovea.ScalarDecay(hidden(GATE))), "decay.log_decay: expected an array without a mask"),
    ("recurrence, masked state", recurrence(initial_state=hidden(STATE)), "initial_state: expected an array without a mask"),
    ("recurrence, masked present", recurrence(present=hidden(np.ones((1, 4), bool))), "present: expected an array without a mask"),
    ("recurrence, masked d_output", recurrence_gradients(d_output=hidden(Q)), "recurrence_gradients: d_output: expected an array without a mask"),
    ("masked x of a convolution", lambda: fovea.causal_conv(hidden(X), TAPS), "causal_conv: x: expected an array without a mask"),
    ("masked weight of a convolution", lambda: fovea.causal_conv(X, hidden(TAPS)), "causal_conv: weight: expected an array without a mask"),
    ("masked d_output of a convolution", lambda: fovea.causal_conv_gradients(X, TAPS, hidden(X)), "causal_conv_gradients: d_output"),
    ("masked output of a part", lambda: fovea.merge([PAIR, (hidden(Q), PAIR[1])]), "merge: parts[1][0]: expected an array without a mask"),
]

MERGES: list[Row] = [
    ("merge of no parts", lambda: fovea.merge([]), "merge: parts: expected a list of pairs"),
    ("merge of a pair", lambda: fovea.merge(PAIR), "merge: parts: expected a list of pairs"),  # type: ignore[arg-type]
    ("merge of no text", lambda: fovea.merge(NoText()), "merge: parts: expected a list of pairs"),  # type: ignore[arg-type]
    ("merge without log-sum-exp", lambda: fovea.merge([(Q, None)]), "merge: parts: expected a list of pairs"),
    ("merge of texts", lambda: fovea.merge(["ab"]), "merge: parts[0][0]: expected an array"),  # type: ignore[list-item]
    ("merge of 3 axes", lambda: fovea.merge([(Q[0], PAIR[1][0])]), "merge: parts[0][0]: expected [batch, heads, query_len, value_dim], got float32 [2, 4, 8]"),
    ("merge of other outputs", lambda: fovea.merge([PAIR, (Q.astype("f8"), PAIR[1])]), "merge: parts[1][0]: expected f32"),
    ("merge of other log-sum-exps", lambda: fovea.merge([PAIR, (Q, PAIR[1][:, :1])]), "merge: parts[1][1]: expected f32 [1, 2, 4]"),
]

ROWS = ARRAYS + OUTPUTS + NUMBERS + PARAMETERS + MASKS + PLANS + ROPES + TEXTS + RECURRENCES + MASKED + MERGES

# Python's own errors for arguments that a signature does not have.
SIGNATURES: list[tuple[str, Callable[[], Any]]] = [
    ("typo", call(maks=fovea.Causal())),
    ("no arguments", lambda: fovea.attention()),  # type: ignore[call-arg]
    ("positional mask", lambda: fovea.attention(Q, Q, Q, fovea.Causal())),  # type: ignore[misc]
    ("plan typo", planned(lenght=3)),
    ("explain typo", lambda: fovea.explain(Q, Q, Q, maks=1)),
    ("SoftCap()", lambda: fovea.SoftCap()),  # type: ignore[call-arg]
    ("Causal(3)", lambda: fovea.Causal(3)),  # type: ignore[call-arg]
    ("Causal() & 3", lambda: fovea.Causal() & 3),  # type: ignore[operator]
    ("predicate of one argument", call(mask=lambda b: True)),
    ("gradients typo", gradients(foo=1)),
    ("recurrence typo", recurrence(decya=fovea.NoDecay())),
    ("explain_recurrence typo", lambda: fovea.explain_recurrence(Q, Q, Q, decya=1)),
]

# Calls that look wrong and work.
WORKS: list[tuple[str, Callable[[], Any]]] = [
    ("read-only inputs", call(query=read_only(), key=read_only(), value=read_only())),
    ("read-only slopes", mod(fovea.AlibiBias(np.broadcast_to(np.float32(1), (2,))))),
    ("read-only mask", call(mask=np.broadcast_to(np.True_, (4, 4)))),
    ("huge strides of axes of 1", call(query=as_strided(Q, (1, 2, 4, 8), (2**62, 128, 32, 4)))),
    ("huge strides of axes of 0", call(query=as_strided(Q, (0, 2, 4, 8), (2**62, 2**62, 2**62, 4)), key=Q[:0], value=Q[:0])),
    ("a subclass", call(query=Q.view(type("Mine", (np.ndarray,), {})))),
    ("only __dlpack__", call(query=Lies(Q), key=Lies(Q), value=Lies(Q))),
    ("arrays that nobody else holds", lambda: fovea.attention(Q.copy(), Q.copy(), Q.copy())),
    ("recurrence of read-only arrays", recurrence(query=read_only(), key=read_only(), value=read_only(), initial_state=STATE)),
    ("recurrence of only __dlpack__", recurrence(query=Lies(Q), key=Lies(Q), value=Lies(Q))),
    ("recurrence of lists", recurrence(decay=fovea.ConstantDecay([-1, -0.5]), present=[[1, 0, 1, True]], sequence_starts=[0, 4])),
    ("a bool of NumPy as dropout", call(dropout=np.float32(0.5))),
    ("numbers of NumPy", call(scale=np.float32(2), seed=np.int64(3), query_offset=np.int32(0))),
]
