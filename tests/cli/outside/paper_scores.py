"""Scores written in torch from the formulas of their papers, and differentiated by torch: no package has them in double with
masks and grouped heads (OpenNMT-py's coverage, for example, is not See et al.'s)."""

import torch

from outside.engine import expand, masked_softmax, masks


def case(engine, turn, key_dim=None, keys=None):
    """Operands, a mask, its bits and flags."""
    heads, kv_heads = ((4, 4), (4, 2), (6, 2), (3, 1))[turn % 4]
    batch, queries, keys, dim = 2, engine.integer(1, 14), keys or engine.integer(5, 24), engine.integer(1, 10)
    key_dim = dim if key_dim is None else key_dim
    given = {"query": engine.random(batch, heads, queries, dim), "key": engine.random(batch, kv_heads, keys, key_dim),
             "value": engine.random(batch, kv_heads, keys, engine.integer(1, 7))}
    every = masks(queries, keys, keys - queries, batch)
    mask = every[turn % len(every)]
    return given, mask.bits(batch, queries, keys, keys - queries), ["--mask", mask.text]


def attention(t, s, bits, lse=True):
    weights, total = masked_softmax(s, bits)
    results = {"out": weights @ expand(t["value"], s.shape[1]), "weights": weights}
    return results | {"lse": total.expand(s.shape[:3])} if lse else results


def additive(t, queries="W", keys="U", bias="b"):
    wq = t["query"] @ t[queries].mT if queries else t["query"]
    uk = expand(t["key"] @ t[keys].mT if keys else t["key"], t["query"].shape[1])
    inner = wq[:, :, :, None] + uk[:, :, None]
    return torch.tanh(inner + t[bias] if bias else inner) @ t["v"]


def check_additive(engine):
    """Bahdanau et al. 2015, appendix A.1.2: vᵀ tanh(W q + U k + b)."""
    for turn in range(12):
        hidden = engine.integer(1, 9)
        projected = turn % 3 == 2  # keys that are projected already
        given, bits, flags = case(engine, turn, key_dim=hidden if projected else engine.integer(1, 10))
        given |= {"W": engine.random(hidden, given["query"].shape[3]), "v": engine.random(hidden, low=-2, high=2), "b": engine.random(hidden)}
        files = {"W": "score.W", "v": "score.v", "b": "score.b"}
        flags += ["--score", "additive", "--additive-query", "@W", "--additive-vector", "@v", "--additive-bias", "@b"]
        if not projected:
            given["U"] = engine.random(hidden, given["key"].shape[3])
            files["U"] = "score.U"
            flags += ["--additive-key", "@U"]
        law = lambda t: attention(t, additive(t, keys=None if projected else "U"), bits)
        engine.compare("additive", given, flags, law, files, loss=("out", "weights") if turn % 2 else ("out",))


def check_bilinear(engine):
    """Luong et al. 2015, "general", hᵀ W_a h̄ with W_a = Wᵀ; a matrix for all heads or one a head."""
    for turn in range(8):
        given, bits, flags = case(engine, turn, key_dim=engine.integer(1, 10))
        heads, dim, key_dim = given["query"].shape[1], given["query"].shape[3], given["key"].shape[3]
        given["W"] = engine.random(*(() if turn % 2 else (heads,)), key_dim, dim)
        law = lambda t: attention(t, torch.einsum("bhid,hed,bhje->bhij", t["query"], t["W"].expand(heads, key_dim, dim), expand(t["key"], heads)), bits)
        engine.compare("bilinear", given, flags + ["--score", "bilinear", "--bilinear", "@W"], law, {"W": "score.W"})


def check_low_rank(engine):
    """Kim et al. 2016: (U k)ᵀ (W q)."""
    for turn in range(6):
        rank = engine.integer(1, 5)
        given, bits, flags = case(engine, turn, key_dim=engine.integer(1, 10))
        given |= {"W": engine.random(rank, given["query"].shape[3]), "U": engine.random(rank, given["key"].shape[3])}
        law = lambda t: attention(t, (t["query"] @ t["W"].mT) @ expand(t["key"] @ t["U"].mT, t["query"].shape[1]).mT, bits)
        engine.compare("low-rank", given, flags + ["--score", "low-rank", "--low-rank-query", "@W", "--low-rank-key", "@U"], law,
                       {"W": "score.W", "U": "score.U"})


def check_concat(engine):
    """Luong et al. 2015: vᵀ tanh(W [q; k])."""
    for turn in range(6):
        hidden = engine.integer(1, 9)
        given, bits, flags = case(engine, turn, key_dim=engine.integer(1, 10))
        given |= {"W": engine.random(hidden, given["query"].shape[3] + given["key"].shape[3]), "v": engine.random(hidden)}

        def law(t):
            (batch, heads, queries, dim), keys = t["query"].shape, t["key"].shape[2]
            both = torch.cat([t["query"][:, :, :, None].expand(-1, -1, -1, keys, -1),
                              expand(t["key"], heads)[:, :, None].expand(-1, -1, queries, -1, -1)], -1)
            return attention(t, torch.tanh(both @ t["W"].mT) @ t["v"], bits)

        engine.compare("concat", given, flags + ["--score", "concat", "--concat-matrix", "@W", "--additive-vector", "@v"], law,
                       {"W": "score.W", "v": "score.v"})


def check_location(engine):
    """Luong et al. 2015: softmax(W q), without keys; rows of W beyond the last key are not read."""
    for turn in range(6):
        given, bits, flags = case(engine, turn)
        keys = given.pop("key").shape[2]
        given["W"] = engine.random(keys + (turn % 2) * 3, given["query"].shape[3])
        law = lambda t: attention(t, t["query"] @ t["W"][:keys].mT, bits)
        engine.compare("location", given, flags + ["--score", "location", "--location", "@W"], law, {"W": "score.W"})


def check_coverage(engine):
    """See et al. 2017, eq. 10 and 11: c_t sums the weights of the earlier steps and enters the score; gradients go through time."""
    for turn in range(8):
        hidden = engine.integer(1, 7)
        given, bits, flags = case(engine, turn, key_dim=engine.integer(1, 10))
        given |= {"W": engine.random(hidden, given["query"].shape[3]), "U": engine.random(hidden, given["key"].shape[3]),
                  "v": engine.random(hidden, low=-2, high=2), "b": engine.random(hidden), "w": engine.random(hidden, low=-2, high=2)}

        def law(t):
            heads, queries = t["query"].shape[1:3]
            wq, uk = t["query"] @ t["W"].mT, expand(t["key"] @ t["U"].mT, heads)
            seen = torch.zeros(*uk.shape[:3], dtype=torch.float64)
            rows = []
            for i in range(queries):
                s = torch.tanh(wq[:, :, i, None] + uk + t["b"] + seen[..., None] * t["w"]) @ t["v"]
                rows.append(masked_softmax(s, bits[:, :, i])[0])
                seen = seen + rows[-1]
            weights = torch.stack(rows, 2)
            return {"out": weights @ expand(t["value"], heads), "weights": weights}

        flags += ["--score", "coverage", "--additive-query", "@W", "--additive-key", "@U", "--additive-vector", "@v", "--additive-bias", "@b",
                  "--coverage-vector", "@w"]
        engine.compare("coverage", given, flags, law, {name: f"score.{name}" for name in "WUvbw"}, loss=("out", "weights") if turn % 2 else ("out",))


def check_local(engine):
    """Luong et al. 2015, eq. 9 and 10: p = S·σ(vᵀ tanh(W q)), keys within D of it, and a Gaussian of deviation D/2 that
    multiplies the weights after the softmax; nothing is normalised again."""
    for turn in range(10):
        hidden, reach = engine.integer(1, 7), (2.5, 4.0, 1.0, 30.0)[turn % 4]
        given, bits, flags = case(engine, turn)
        heads, keys, dim = given["query"].shape[1], given["key"].shape[2], given["query"].shape[3]
        each = (heads,) if turn % 2 else ()
        given |= {"W": engine.random(*each, hidden, dim), "v": engine.random(*each, hidden, low=-2, high=2)}

        def law(t):
            inner = torch.tanh(torch.einsum("bhid,hnd->bhin", t["query"], t["W"].expand(heads, hidden, dim)))
            center = keys * torch.sigmoid(torch.einsum("bhin,hn->bhi", inner, t["v"].expand(heads, hidden)))[..., None]
            away = torch.arange(keys) - center
            s = t["query"] @ expand(t["key"], heads).mT / dim**0.5
            weights, lse = masked_softmax(s, bits & (away.detach().abs() <= reach))
            weights = weights * torch.exp(-away * away / (2 * (reach / 2) ** 2))
            return {"out": weights @ expand(t["value"], heads), "weights": weights, "lse": lse}

        engine.compare("local-p", given, flags + ["--local-p", str(reach), "--local-query", "@W", "--local-vector", "@v"], law,
                       {"W": "local.W", "v": "local.v"}, loss=("out", "weights") if turn % 2 else ("out",))


PARTS = [
    ("additive", "Bahdanau's formula in torch", check_additive),
    ("bilinear", "Luong's formula in torch", check_bilinear),
    ("low-rank bilinear", "Kim's formula in torch", check_low_rank),
    ("concat", "Luong's formula in torch", check_concat),
    ("location", "Luong's formula in torch", check_location),
    ("coverage", "See's formula in torch", check_coverage),
    ("local-p", "Luong's formula in torch", check_local),
]
