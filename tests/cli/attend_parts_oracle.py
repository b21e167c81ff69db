"""fovea attend, every part by its flag, against NumPy in double: outputs and weights, and each gradient along a random direction by
central differences of the same NumPy. Wrong combinations of flags are refused by name."""

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

random = np.random.default_rng(7)
B, H, KV, Q, K, D, V, HIDDEN, STEP = 2, 4, 2, 6, 8, 5, 3, 7, 1e-5


def uniform(*shape, low=-1.0, high=1.0):
    return random.uniform(low, high, shape)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def softmax(s):
    top = s.max(-1, keepdims=True)
    e = np.where(np.isneginf(s), 0.0, np.exp(s - np.where(np.isneginf(top), 0.0, top)))
    return e / np.maximum(e.sum(-1, keepdims=True), 1e-300)


def entmax(s, alpha):
    """The threshold by bisection: at (alpha - 1)·max the sum of the weights is 0, and at 1 below that it is at least 1."""
    z = (alpha - 1) * s
    high = z.max(-1, keepdims=True)
    low = high - 1
    weights = lambda tau: np.where(z > tau, z - tau, 0.0) ** (1 / (alpha - 1)) * (z > tau)
    for _ in range(100):
        middle = (low + high) / 2
        over = weights(middle).sum(-1, keepdims=True) > 1
        low, high = np.where(over, middle, low), np.where(over, high, middle)
    return weights((low + high) / 2)


def chain(s, transitions):
    """Marginals of a chain over the visible keys, by all 2^n assignments."""
    result = np.zeros_like(s)
    for at in np.ndindex(s.shape[:-1]):
        t = transitions if transitions.ndim == 2 else transitions[at[1]]
        seen = np.flatnonzero(~np.isneginf(s[at]))
        z = (np.arange(2 ** len(seen))[:, None] >> np.arange(len(seen))) & 1
        p = np.exp(z @ s[at][seen] + t[z[:, :-1], z[:, 1:]].sum(-1))
        result[at][seen] = z.T @ p / p.sum()
    return result


def hardmax(s):
    best = (s == s.max(-1, keepdims=True)) & ~np.isneginf(s)
    return best / np.maximum(best.sum(-1, keepdims=True), 1)


def normalize(name, s, a):
    if name == "softmax":
        return softmax(s)
    if name == "scalable":
        seen = ~np.isneginf(s)
        factor = a["_scale"][None, :, None, None] * np.log(np.maximum(seen.sum(-1, keepdims=True), 1))
        return softmax(np.where(seen, factor * np.where(seen, s, 0.0), -np.inf))
    if name == "sink":
        return np.exp(s) / (np.exp(a["sink"])[None, :, None, None] + np.exp(s).sum(-1, keepdims=True))
    if name.startswith("sigmoid"):
        return sigmoid(s + float(name[8:-1]))
    if name in ("sparsemax", "entmax") or name.startswith("entmax("):
        return entmax(s, 2.0 if name == "sparsemax" else 1.5 if name == "entmax" else float(name[7:-1]))
    return chain(s, a["transitions"]) if name == "chain" else hardmax(s)


def mod(name, x, argument, p, j):
    number = float(name[name.index("(") + 1 : -1]) if "(" in name else None
    if name.startswith("softcap"):
        return number * np.tanh(x / number)
    if name.startswith("temperature"):
        return x / (number if argument is None else argument[None, :, None, None])
    if name == "alibi":
        return x - (2.0 ** (-8 / H * np.arange(1, H + 1)) if argument is None else argument)[None, :, None, None] * (p - j)
    if name == "bias":
        return x + argument
    if name.startswith("relative-key"):
        return x + np.take_along_axis(argument, np.broadcast_to(np.clip(p - j, -number, number).astype(int) + int(number), x.shape), -1)
    if name == "forget":
        sums = np.cumsum(argument, -1)
        return x + sums[:, :, p[:, 0], None] - sums[:, :, None]
    away = j - argument
    return np.where(np.abs(away) <= number, x, -np.inf) if name.startswith("local") else x * np.exp(-(away**2) / (2 * number**2))


def raw_scores(score, a, q, k, previous=None):
    """[batch, heads, rows, keys]; `previous` has the weights that coverage sums."""
    if score == "location":
        return q @ a["location"][: K if "v" not in a else a["v"].shape[2]].T
    if score == "bilinear":
        return np.einsum("bhjd,de,bhie->bhij", k, a["bilinear"], q)
    if score == "low-rank":
        return (q @ a["low-rank-query"].T) @ (k @ a["low-rank-key"].T).swapaxes(-1, -2)
    if score in ("additive", "coverage", "concat"):
        W, U = (a["concat-matrix"][:, : q.shape[-1]], a["concat-matrix"][:, q.shape[-1] :]) if score == "concat" else (a["additive-query"], a["additive-key"])
        inside = (q @ W.T)[:, :, :, None] + (k @ U.T)[:, :, None] + a.get("additive-bias", 0.0)
        if previous is not None:
            inside = inside + previous[..., None] * a["coverage-vector"]
        return np.tanh(inside) @ a["additive-vector"]
    if score == "cosine":
        q, k = (x / np.linalg.norm(x, axis=-1, keepdims=True) for x in (q, k))
        return q @ k.swapaxes(-1, -2) / np.maximum(a["_heat"], 0.01)[None, :, None, None]
    return q @ k.swapaxes(-1, -2) * (q.shape[-1] ** -0.5 if score == "scaled-dot" else 1.0)


def turned(x, first, pairs=2):
    """rope(4): element i and i + 2 of the row at position p by the angle p·10000^(-i/2)."""
    angle = (np.arange(x.shape[2])[:, None] + first) * 10000.0 ** (-np.arange(pairs) / pairs)
    a, b = x[..., :pairs], x[..., pairs : 2 * pairs]
    return np.concatenate((a * np.cos(angle) - b * np.sin(angle), a * np.sin(angle) + b * np.cos(angle), x[..., 2 * pairs :]), -1)


class Case:
    """Flags, where {name} is the file of an array; the function in NumPy; and the name of each array's gradient."""

    def __init__(self, arrays, score="scaled-dot", normalizer="softmax", mods=(), weight_mods=(), causal=True, reach=None, flags=(), named=()):
        self.arrays, self.score, self.normalizer, self.mods, self.weight_mods, self.causal, self.reach = arrays, score, normalizer, mods, weight_mods, causal, reach
        self.flags = ["--score", score, "--normalizer", normalizer, *flags] + (["--mask", "causal"] if causal else [])
        self.files = {"q": "query", "k": "key", "v": "value", "bilinear": "score.W", "low-rank-query": "score.W", "low-rank-key": "score.U",
                      "additive-query": "score.W", "additive-key": "score.U", "additive-vector": "score.v", "additive-bias": "score.b", "coverage-vector": "score.w",
                      "concat-matrix": "score.W", "location": "score.W", "sink": "normalizer.sink", "transitions": "normalizer.transitions",
                      "differential": "lambda", "gate": "gate", "local-query": "local.W", "local-vector": "local.v",
                      "latent-key": "latent.W_UK", "latent-value": "latent.W_UV", "query-rotary": "query_rotary"}
        self.extra = {f"mods[{n}].slope" for n, (name, array, _) in enumerate(mods) if name == "alibi" and not array}
        for name in arrays:
            if name not in ("q", "k", "v", "dO", "dP") and name[0] != "_":
                self.flags += [f"--{name}", "{" + name + "}"]
        for flag, listed in (("mod", mods), ("weight-mod", weight_mods)):
            for n, (name, array, argument) in enumerate(listed):
                self.flags += [f"--{flag}", name + ("={" + array + "}" if array else "")]
                if array:
                    self.files[array] = f"{flag.replace('-', '_')}s[{n}].{argument}"
        for argument, name in dict(named).items():
            self.flags += ["--argument", argument + "={" + name + "}"]
            self.files[name] = argument
        if reach:
            self.flags += ["--local-p", str(reach)]

    def attend(self, a, q, k):
        """Weights, given queries and keys [batch, heads, ...]."""
        p, j = np.arange(q.shape[2])[:, None] + K - q.shape[2], np.arange(K)[None, :]
        mods, weight_mods = ([(name, a.get(array)) for name, array, _ in listed] for listed in (self.mods, self.weight_mods))
        if self.reach:
            centers = K * sigmoid(np.tanh(a["q"] @ a["local-query"].T) @ a["local-vector"])[..., None]
            mods, weight_mods = mods + [(f"local({self.reach})", centers)], weight_mods + [(f"gaussian({self.reach / 2})", centers)]

        def weights(s, rows):
            for name, argument in mods:
                s = mod(name, s, argument, p[rows], j)
            return normalize(self.normalizer, np.where(j <= p[rows], s, -np.inf) if self.causal else s, a)

        if self.score == "coverage":
            P, previous = np.zeros((*q.shape[:3], K)), np.zeros((*q.shape[:2], 1, K))
            for i in range(q.shape[2]):
                rows = slice(i, i + 1)
                P[:, :, rows] = weights(raw_scores(self.score, a, q[:, :, rows], k, previous), rows)
                previous = previous + P[:, :, rows]
        else:
            P = weights(raw_scores(self.score, a, q, k), slice(None))
        factor = np.ones_like(P)
        for name, argument in weight_mods:
            factor = mod(name, factor, argument, p, j)
        return P * factor

    def compute(self, a):
        repeat = lambda x, heads: np.repeat(x, heads // x.shape[1], 1)
        q, k, heads = a["q"], a.get("k"), a["q"].shape[1] // (2 if "differential" in a else 1)
        if "--rope" in self.flags:
            q, k = turned(q, K - q.shape[2]), turned(k, 0)
        if "differential" in a:
            P = [self.attend(a, q[:, n::2], repeat(k[:, n::2], heads)) for n in (0, 1)]
            P = P[0] - a["differential"][None, :, None, None] * P[1]
        else:
            P = self.attend(a, q, None if k is None else repeat(k, heads))
        out = P @ repeat(a["v"], heads) if "v" in a else None
        return out if "gate" not in a else out * sigmoid(a["gate"]), P

    def loss(self, a, chosen):
        out, P = self.compute(a)
        return (0.0 if "dO" not in a else (out * a["dO"]).sum()) + (0.0 if "dP" not in a else (P[chosen] * a["dP"]).sum())


class Latent(Case):
    """Every head's keys are W_UK times a latent and a part that all share; its values are W_UV times the latent."""

    def __init__(self, arrays, **more):
        super().__init__(arrays, **more)
        self.files["k"] = "cache"

    def compute(self, a):
        latents, shared = np.split(a["k"], [a["latent-key"].shape[2]], -1)
        k = np.einsum("hdc,bjc->bhjd", a["latent-key"], latents)
        q = a["q"]
        if "query-rotary" in a:
            q, k = np.concatenate((q, a["query-rotary"]), -1), np.concatenate((k, np.broadcast_to(shared[:, None], (*k.shape[:3], shared.shape[-1]))), -1)
        P = self.attend(a, q, k)
        out = P @ np.einsum("hvc,bjc->bhjv", a["latent-value"], latents)
        return out if "gate" not in a else out * sigmoid(a["gate"]), P


class Command:
    def __init__(self, fovea, folder):
        self.fovea, self.folder = fovea, Path(folder)

    def path(self, name):
        return str(self.folder / f"{name}.npy")

    def run(self, arrays, flags, check=True, dtype=np.float64):
        for name, array in arrays.items():
            np.save(self.path(name), array.astype(dtype))
        words = [flag.format(**{name: self.path(name) for name in arrays}) if "{" in flag else flag for flag in flags]
        operands = [part for flag, name in (("--query", "q"), ("--key", "k"), ("--value", "v")) if name in arrays for part in (flag, self.path(name))]
        run = subprocess.run([self.fovea, "attend", *operands, *words], capture_output=True, text=True, timeout=120)
        assert not check or run.returncode == 0, (flags, run.stderr)
        return run

    def gradients(self, flags, arrays):
        folder = self.folder / "gradients"
        for old in folder.glob("*"):
            old.unlink()
        self.run(arrays, [*flags, "--grad-out", str(folder)])
        return {file.stem: np.load(file) for file in folder.glob("*.npy")}


def near(got, want, bound, what):
    assert got.shape == want.shape, (what, got.shape, want.shape)
    assert np.abs(got - want).max(initial=0.0) <= bound, (what, np.abs(got - want).max())


def along_a_direction(loss, arrays, name, gradient, what):
    direction = uniform(*arrays[name].shape)
    up, down = (loss({**arrays, name: arrays[name] + sign * STEP * direction}) for sign in (1, -1))
    numeric, got = (up - down) / (2 * STEP), (gradient * direction).sum()
    assert abs(numeric - got) < 1e-7 * max(1, abs(numeric)), (what, name, numeric, got)


def check_case(command, case, heads=(), rows=()):
    """Outputs, weights (chosen ones too) in both types; every gradient of a loss on the output, the weights, or both."""
    chosen = np.ix_(range(case.arrays["q"].shape[0]), heads or range(case.compute(case.arrays)[1].shape[1]), rows or range(case.arrays["q"].shape[2]), range(K))
    what = case.flags
    out, P = case.compute(case.arrays)
    mechanism = "differential" in case.arrays or isinstance(case, Latent)
    wanted = ([] if out is None else ["--out", command.path("o")]) + ([] if mechanism else ["--weights", command.path("w")])
    choice = (["--weight-heads", ",".join(map(str, heads))] if heads else []) + (["--weight-rows", ",".join(map(str, rows))] if rows else [])
    for dtype in (np.float64, np.float32):
        command.run(case.arrays, [*case.flags, *wanted, *choice], dtype=dtype)
        # Scores are below 16, so the relative error of a weight is that many eps; entmax takes a root of it.
        bound = 64 * K * np.finfo(dtype).eps * (1 if "entmax" not in case.normalizer else 8)
        if out is not None:
            near(np.load(command.path("o")), out, bound, what)
        if not mechanism:
            near(np.load(command.path("w")), P[chosen], bound, what)
    losses = ([{"dO": uniform(*out.shape)}] if out is not None else []) + ([] if mechanism else [{"dP": uniform(*P[chosen].shape)}])
    both = [{name: array for loss in losses for name, array in loss.items()}] if len(losses) > 1 else []
    for extra in losses + both:
        if "gate" in case.arrays and "dO" not in extra:
            continue  # a gate is on the output
        arrays = {**case.arrays, **extra}
        flags = [part for name, flag in (("dO", "--grad"), ("dP", "--grad-weights")) if name in extra for part in (flag, command.path(name))]
        found = command.gradients([*case.flags, *(wanted if "dO" in extra or out is None else ["--weights", command.path("w")]), *flags, *(choice if "dP" in extra else [])], arrays)
        names = {name: case.files[name] for name in case.arrays if name in case.files}
        assert sorted(set(found) - case.extra) == sorted(names.values()), (what, sorted(found), names)
        for name, file in names.items():
            assert found[file].shape == arrays[name].shape, (what, file, found[file].shape)
            along_a_direction(lambda a: case.loss(a, chosen), arrays, name, found[file], what)
    return 1


def operands(keys=K, value=True, **more):
    return {"q": uniform(B, H, Q, D), "k": uniform(B, KV, keys, D)} | ({"v": uniform(B, KV, keys, V)} if value else {}) | more


def without_keys(arrays):
    return {name: array for name, array in arrays.items() if name != "k"}


def cases():
    additive = lambda: {"additive-query": uniform(HIDDEN, D), "additive-key": uniform(HIDDEN, D), "additive-vector": uniform(HIDDEN), "additive-bias": uniform(HIDDEN)}
    centers = uniform(B, H, Q, 1, low=1.0, high=K - 1.0)
    yield Case(operands()), (), ()
    yield Case(operands(sink=uniform(H)), normalizer="sink"), (1, 2), (5,)
    yield Case(operands(), normalizer="sigmoid(-0.5)"), (0, 3), (1, 3)
    for normalizer in ("sparsemax", "entmax", "entmax(1.25)"):
        arrays = operands()
        arrays["q"] *= 3  # some weights of exactly 0
        yield Case(arrays, normalizer=normalizer), (0, 3), (5, 2)
    yield Case(operands(transitions=uniform(2, 2)), normalizer="chain"), (), ()
    yield Case(operands(transitions=uniform(H, 2, 2)), normalizer="chain"), (3,), (0, 5)
    yield Case(operands(bilinear=uniform(D, D)), score="bilinear"), (), ()
    yield Case(operands(**{"low-rank-query": uniform(3, D), "low-rank-key": uniform(3, D)}), score="low-rank"), (), ()
    yield Case(operands(**additive()), score="additive"), (2,), ()
    yield Case(operands(**{"concat-matrix": uniform(HIDDEN, 2 * D), "additive-vector": uniform(HIDDEN), "additive-bias": uniform(HIDDEN)}), score="concat"), (), (4,)
    yield Case(operands(**additive(), **{"coverage-vector": uniform(HIDDEN)}), score="coverage"), (), ()
    yield Case(operands(**additive(), **{"coverage-vector": uniform(HIDDEN)}), score="coverage", normalizer="sparsemax"), (0, 1), (2, 3)
    yield Case(without_keys(operands(location=uniform(K + 3, D))), score="location"), (), ()
    yield Case(without_keys(operands(value=False, location=uniform(K, D))), score="location", normalizer="sparsemax"), (1,), (2, 4)
    yield Case(operands(_scale=uniform(H)), normalizer="scalable", named={"normalizer.scale": "_scale"}), (), ()
    yield Case(operands(_heat=uniform(H, low=0.3)), score="cosine", named={"score.temperature": "_heat"}), (1,), (2,)
    mods = {"softcap(0.7)": None, "temperature(0.5)": None, "temperature": (H,), "alibi": (H,), "bias": (Q, K), "relative-key(3)": (B, H, Q, 7), "forget": (B, H, K)}
    arguments = {"temperature": "temperature", "alibi": "slope", "bias": "bias", "relative-key(3)": "table", "forget": "log_forget"}
    for first, second in (("softcap(0.7)", "temperature(0.5)"), ("temperature", "alibi"), ("relative-key(3)", "forget"), ("forget", "bias"), ("bias", "softcap(0.7)")):
        names = [(name, f"_m{n}" if mods[name] else None, arguments.get(name)) for n, name in enumerate((first, second))]
        yield Case(operands(**{array: uniform(*mods[name], low=0.2) for name, array, _ in names if array}), mods=names), (2,), (1, 4)
    yield Case(operands(), mods=[("alibi", None, None)]), (), ()
    yield Case(operands(_c=centers), weight_mods=[("gaussian(2)", "_c", "center")]), (0,), (3,)
    yield Case(operands(_c=centers, _m=uniform(H)), weight_mods=[("gaussian(2)", "_c", "center"), ("temperature", "_m", "temperature")], normalizer="sparsemax"), (), ()
    local = lambda: {"local-query": uniform(HIDDEN, D), "local-vector": uniform(HIDDEN)}
    yield Case(operands(**local()), reach=2.5, causal=False), (), ()
    yield Case(operands(**local()), reach=3, causal=False, mods=[("softcap(0.7)", None, None)], normalizer="entmax"), (3, 1), (0, 2)
    yield Case(operands(**local()), reach=3, causal=False, flags=["--rope", "rope(4)"]), (), ()
    yield Case(operands(value=False), normalizer="softmax"), (), ()
    yield Case(operands(value=False, sink=uniform(H)), normalizer="sink"), (0, 3), (5,)
    double = lambda: {"q": uniform(B, 2 * H, Q, D), "k": uniform(B, 2 * KV, K, D), "v": uniform(B, KV, K, V), "differential": uniform(H)}
    yield Case(double()), (), ()
    yield Case(double() | {"sink": uniform(H), "_m": uniform(H)}, normalizer="sink", mods=[("alibi", "_m", "slope")]), (), ()
    yield Case(double() | {"gate": uniform(B, H, Q, V)}, normalizer="sparsemax"), (), ()
    yield Case(operands(gate=uniform(B, H, Q, V))), (), ()
    yield Case(operands(gate=uniform(B, H, Q, 1)), normalizer="entmax"), (1,), (2,)
    latent = lambda rotary: ({"q": uniform(B, H, Q, D), "k": uniform(B, K, 4 + rotary), "latent-key": uniform(H, D, 4), "latent-value": uniform(H, V, 4)} |
                             ({"query-rotary": uniform(B, H, Q, rotary)} if rotary else {}))
    for execution in ("absorbed", "naive"):
        flags = ["--latent-execution", execution]
        yield Latent(latent(2), flags=flags), (), ()
        yield Latent(latent(0) | {"sink": uniform(H), "gate": uniform(B, H, Q, V)}, normalizer="sink", flags=flags), (), ()
        yield Latent(latent(2) | {"_m": uniform(H)} | local(), normalizer="sparsemax", mods=[("alibi", "_m", "slope")], reach=4, flags=flags), (), ()


def check_argmax(command):
    """Values and factors of the weights have gradients, scores have none."""
    case = Case(operands(_c=uniform(B, H, Q, 1, low=1.0, high=6.0)), normalizer="argmax", weight_mods=[("gaussian(2)", "_c", "center")])
    arrays = {**case.arrays, "dO": uniform(B, H, Q, V)}
    found = command.gradients([*case.flags, "--out", command.path("o"), "--grad", command.path("dO")], arrays)
    near(np.load(command.path("o")), case.compute(arrays)[0], 1e-13, "argmax")
    assert sorted(found) == ["value", "weight_mods[0].center"], sorted(found)
    for name, file in (("v", "value"), ("_c", "weight_mods[0].center")):
        along_a_direction(lambda a: case.loss(a, None), arrays, name, found[file], "argmax")
    return 1


def check_samples(command):
    """One key for each row, with the frequencies of softmax; the gradient by the scores is that of advantage · ln P(key)."""
    row = {"q": uniform(1, 1, 1, D), "k": uniform(1, 1, 5, D)}
    expected, seeds = softmax(row["q"] @ row["k"].swapaxes(-1, -2) / D**0.5).ravel(), 400
    for normalizer in ("sample", "gumbel(0.7)"):
        count = np.zeros(5)
        for seed in range(seeds):
            command.run(row if seed == 0 else {}, ["--query", command.path("q"), "--key", command.path("k"), "--normalizer", normalizer, "--sample-seed", str(seed),
                                                   "--weights", command.path("w")][0 if seed else 4 :])
            weights = np.load(command.path("w")).ravel()
            assert sorted(weights) == [0, 0, 0, 0, 1], (normalizer, seed, weights)
            count += weights
        assert (np.abs(count / seeds - expected) <= 5 * np.sqrt(expected * (1 - expected) / seeds)).all(), (normalizer, count, expected)
    case = Case(operands(_m=uniform(H)), mods=[("alibi", "_m", "slope")])
    arrays = {**case.arrays, "dO": uniform(B, H, Q, V), "advantage": uniform(B, H, Q)}
    flags = ["--normalizer", "sample", "--sample-seed", "3", "--out", command.path("o"), "--weights", command.path("w"), "--advantage", command.path("advantage"),
             "--grad", command.path("dO"), "--mod", "alibi={_m}", "--mask", "causal"]
    found = command.gradients(flags, arrays)
    drawn = np.load(command.path("w"))
    near(np.load(command.path("o")), drawn @ np.repeat(arrays["v"], H // KV, 1), 1e-14, "sample")
    near(found["value"], (drawn.swapaxes(-1, -2) @ arrays["dO"]).reshape(B, KV, H // KV, K, V).sum(2), 1e-13, "value of sample")
    likelihood = lambda a: (arrays["advantage"] * np.log((case.compute(a)[1] * drawn).sum(-1))).sum()
    for name, file in (("q", "query"), ("k", "key"), ("_m", "mods[0].slope")):
        along_a_direction(likelihood, arrays, name, found[file], "sample")
    return 3


def check_dropout_and_kernels(command):
    """Dropped weights are 0, and the others are divided by 1 - the rounded rate; every kernel gives the same output."""
    case = Case(operands(keys=K))
    arrays = {**case.arrays, "v": np.broadcast_to(np.eye(K), (B, KV, K, K))}
    P, outputs = case.compute(case.arrays)[1], []
    for seed in ("1", "1", "2"):
        command.run(arrays, ["--mask", "causal", "--dropout", "0.25", "--dropout-seed", seed, "--out", command.path("o")])
        outputs.append(np.load(command.path("o")))
        kept = outputs[-1] != 0
        near(outputs[-1], np.where(kept, P / 0.75, 0.0), 1e-14, "dropout")
        assert 0.6 < kept[P > 0].mean() < 0.9, kept[P > 0].mean()
    assert (outputs[0] == outputs[1]).all() and (outputs[0] != outputs[2]).any()
    for kernel in ("reference", "baseline"):
        run = command.run(arrays, ["--mask", "causal", "--kernel", kernel, "--explain", "--out", command.path("o")])
        assert kernel in run.stdout.splitlines()[0], run.stdout
        near(np.load(command.path("o")), P, 1e-14, kernel)
    run = command.run(operands(transitions=uniform(2, 2), _t=uniform(H)),
                      ["--mod", "softcap(50)", "--mod", "temperature={_t}", "--normalizer", "chain", "--transitions", "{transitions}", "--dropout", "0.5", "--weight-mod", "softcap(2)",
                       "--explain", "--out", command.path("o")])
    assert run.stdout.splitlines()[1].endswith("-> softcap(50) -> temperature -> everything -> chain -> weights softcap(2) -> dropout 0.5"), run.stdout
    return 5


def check_mistakes(command):
    """The error is one line that names the flag; nothing is written."""
    arrays = operands(sink=uniform(H), dO=uniform(B, H, Q, V), dP=uniform(B, H, Q, K), few=uniform(H - 1), W=uniform(HIDDEN, D), v1=uniform(HIDDEN), lam=uniform(H), t=uniform(2, 3),
                      gates=uniform(B, H, K - 1), cache=uniform(B, K, 6), UK=uniform(H, D, 4), UV=uniform(H, V, 4), adv=uniform(B, H, Q), k2=uniform(B, 2 * KV, K, D))
    arrays["v"] = uniform(B, KV, K, V)
    for name, array in arrays.items():
        np.save(command.path(name), array)
    at, before = command.path, {name: Path(command.path(name)).read_bytes() for name in arrays}
    q, k, v, out, w = ["--query", at("q")], ["--key", at("k")], ["--value", at("v")], ["--out", at("never")], ["--weights", at("never")]
    plain, grad = [*q, *k, *v, *out], ["--grad", at("dO"), "--grad-out", at("folder")]
    latent = [*q, "--key", at("cache"), "--latent-key", at("UK"), "--latent-value", at("UV"), *out]
    mistakes = [
        ([*q, *v, *out], "--key: expected a file, got none"), ([*q, *k, *v], "--out: expected a file, or one for --weights, or --explain alone, got none"),
        ([*q, *k, *out], "--value: expected a file for --out"), ([*q, *k, *w, *grad], "--value: expected a file for --grad"),
        ([*plain, "--score", "concat"], "--concat-matrix: expected a file"), ([*plain, "--score", "cosinus"], "--score: expected a score (scaled-dot, "),
        ([*plain, "--score", "location"], "--key: expected nothing"), ([*q, *v, *out, "--score", "location"], "--location: expected a file"),
        ([*plain, "--score", "coverage", "--additive-vector", at("v1")], "--coverage-vector: expected a file"),
        ([*plain, "--coverage-vector", at("v1")], "--coverage-vector: expected --score coverage, got --score scaled-dot"),
        ([*plain, "--additive-bias", at("v1")], "--additive-bias: expected --score additive, concat or coverage"),
        ([*plain, "--score", "concat", "--concat-matrix", at("W"), "--additive-vector", at("v1")], "--concat-matrix: expected [hidden, 10]"),
        ([*plain, "--score", "additive", "--additive-query", at("W"), "--additive-key", at("t"), "--additive-vector", at("v1")], "--additive-key: expected f64 [7, 5], got f64 [2, 3]"),
        ([*plain, "--mod", "sofcap(2)"], "--mod, column 1: expected a mod (softcap"), ([*plain, "--weight-mod", "gaussian(0)=" + at("few")], "--weight-mod, column 1: expected deviation"),
        ([*plain, "--weight-mod", "gaussian(2)"], "--weight-mod gaussian(2): expected =FILE with its center, got none"), ([*plain, "--mod", "forget"], "--mod forget: expected =FILE with its log gates"),
        ([*plain, "--mod", "forget=" + at("gates")], "--mod forget: expected log gates [batch, heads, 8], got [2, 4, 7]"), ([*plain, "--mod", "alibi=" + at("few")], "--mod (mods[0].slope): expected"),
        ([*plain, "--mod", "alibi="], "--mod alibi=: expected a file behind the '=', got none"), ([*plain, "--mod", "softcap(50)="], "--mod softcap(50)=: expected a file"),
        ([*plain, "--score", "concat", "--argument", "score.W=" + at("W"), "--additive-vector", at("v1")], "--argument score.U: expected a matrix [7, 5], or operands already projected to hidden 7, got nothing"),
        ([*plain, "--local-p", "2"], "--local-query: expected a file for --local-p"), ([*plain, "--local-query", at("W")], "--local-p: expected a reach"),
        ([*plain, "--local-p", "0", "--local-query", at("W"), "--local-vector", at("v1")], "--local-p: expected a reach above 0"),
        ([*plain, "--local-p", "2", "--local-query", at("W"), "--local-vector", at("few")], "--local-vector: expected f64 [7], got f64 [3]"),
        ([*plain, "--normalizer", "sparsmax"], "--normalizer, column 1: expected a normaliser"), ([*plain, "--normalizer", "entmax(3)"], "--normalizer: expected an alpha of entmax in [1.01, 2]"),
        ([*plain, "--normalizer", "sink"], "--sink: expected a file"), ([*plain, "--sink", at("sink")], "--sink: expected --normalizer sink beside it, got --normalizer softmax"),
        ([*plain, "--normalizer", "sink", "--sink", at("few")], "--sink: expected f64 [4], got f64 [3]"),
        ([*plain, "--transitions", at("t")], "--transitions: expected --normalizer chain"), ([*plain, "--normalizer", "chain"], "--transitions: expected a file"),
        ([*plain, "--normalizer", "chain", "--transitions", at("t")], "--transitions: expected f64 [2, 2] or [4, 2, 2], got f64 [2, 3]"),
        ([*plain, "--normalizer", "sample", *grad], "--advantage: expected a file"), ([*plain, "--advantage", at("adv")], "--advantage: expected --normalizer sample"),
        ([*plain, "--normalizer", "sample", "--advantage", at("adv")], "--advantage: expected --grad"),
        ([*plain, "--normalizer", "sample", "--advantage", at("few"), *grad], "--advantage: expected f64 [2, 4, 6]"),
        ([*plain, "--sample-seed", "3"], "--sample-seed: expected --normalizer sample or gumbel"), ([*plain, "--dropout-seed", "3"], "--dropout-seed: expected --dropout"),
        ([*plain, "--dropout", "1"], "--dropout: expected a rate in [0, 1)"), ([*plain, "--kernel", "mmx"], "--kernel: expected one of"),
        ([*plain, "--weight-heads", "0"], "--weight-heads: expected --weights"), ([*q, *k, *w, "--weight-heads", "0,4"], "--weight-heads: expected numbers in [0, 4), got 4"),
        ([*q, *k, *w, "--weight-rows", "6"], "--weight-rows: expected numbers in [0, 6), got 6"),
        ([*plain, "--grad", at("dO")], "--grad-out: expected a folder"), ([*plain, "--grad-out", at("folder")], "--grad: expected a file"),
        ([*plain, "--grad", at("dP"), "--grad-out", at("folder")], "--grad: expected f64 [2, 4, 6, 3]"),
        ([*plain, "--grad-weights", at("dO"), "--grad-out", at("folder")], "--grad-weights: expected f64 [2, 4, 6, 8]"),
        ([*q, "--key", at("k2"), *v, *out, "--differential", at("few")], "--differential: expected f64 [2], got f64 [3]"),
        ([*plain, "--differential", at("lam")], "--value: expected a number of heads, half of what --key has"), ([*plain, *w, "--differential", at("lam")], "--weights: expected one attention"),
        ([*plain, "--gate", at("dP")], "--gate: expected"), ([*q, *k, *w, "--gate", at("dO")], "--gate: expected --out or --grad"),
        ([*plain, "--latent-value", at("UV")], "--latent-key: expected a file beside --latent-value"), ([*plain, "--query-rotary", at("q")], "--query-rotary: expected --latent-key"),
        ([*latent, *v], "--value: expected nothing: values come from the latents"), ([*latent, "--score", "dot"], "--score: expected scaled-dot"), (latent, "--key: expected f64 [2, 8, 4], got f64 [2, 8, 6]"),
        ([*latent, "--rope", "rope(2)"], "--rope: expected"), ([*latent, "--grad-weights", at("dP"), "--grad-out", at("folder")], "--grad-weights: expected one attention"),
        ([*plain, "--normalizer", "scalable"], "--argument normalizer.scale: expected a file for --normalizer scalable, got none"),
        ([*plain, "--normalizer", "scalable", "--argument", "normalizer.scale=" + at("few")], "--argument normalizer.scale: expected f64 [4], got f64 [3]"),
        ([*plain, "--score", "cosine"], "--argument score.temperature: expected a file for --score cosine, got none"),
        ([*plain, "--mod", "forget", "--argument", "mods[0].query=" + at("gates")], "--argument mods[0].key: expected a file for --mod forget, got none"),
        ([*plain, "--mod", "forget=" + at("gates"), "--argument", "mods[0].key=" + at("gates")], "--argument mods[0].key: expected nothing, because --mod gives its file"),
        ([*plain, "--argument", "score.W=" + at("W")], "--argument score.W: expected no argument: this spec has none"),
        ([*plain, "--score", "bilinear", "--argument", "score.v=" + at("W")], "--argument score.v: expected one of score.W, got an argument that this spec does not have"),
        ([*plain, "--score", "bilinear", "--bilinear", at("W"), "--argument", "score.W=" + at("W")], "--argument score.W: expected nothing, because --bilinear gives its file"),
        ([*plain, "--score", "bilinear", "--argument", "score.W=" + at("W"), "--argument", "score.W=" + at("W")], "--argument score.W: expected this argument once, got twice"),
        ([*plain, "--score", "bilinear", "--argument", "score.W=" + at("few")], "--argument score.W: expected f64 [5, 5] or [4, 5, 5], got f64 [3]"),
        ([*plain, "--score", "concat", "--additive-vector", at("v1"), "--argument", "score.U=" + at("W")], "--concat-matrix: expected a file for --score concat"),
        ([*latent, "--key", at("k")], None), ([*q, *k, *v, "--out", at("q")], "--out: expected a file other than those it reads"),
        ([*q, *k, *v, *out, "--mod", "bias=" + at("never")], "--out: expected a file other than those it reads"),
        ([*q, *k, *v, *out, "--lse", at("never")], "--lse: expected a file other than that of --out"),
    ]
    wrong = []
    for flags, words in mistakes:
        run = subprocess.run([command.fovea, "attend", *flags], capture_output=True, text=True)
        refused = run.returncode == 1 and run.stderr.startswith(("fovea: ", "fovea attend: ")) and run.stderr.count("\n") == 1 and words in run.stderr.replace("':", ":") if words else run.returncode == 2
        wrong += [] if refused else [(words, run.returncode, run.stderr)]
        assert not Path(at("never")).exists() and not Path(at("folder")).exists(), flags
    assert not wrong, "\n".join(map(str, wrong))
    # A gradient must not overwrite an input file either.
    folder = Path(at("operands")).parent / "operands"
    folder.mkdir()
    np.save(folder / "query.npy", arrays["q"])
    run = subprocess.run([command.fovea, "attend", "--query", str(folder / "query.npy"), *k, *v, *out, "--grad", at("dO"), "--grad-out", str(folder)], capture_output=True, text=True)
    assert run.returncode == 1 and "'--grad-out': expected a file other than those it reads" in run.stderr and not Path(at("never")).exists(), run
    assert all(Path(at(name)).read_bytes() == content for name, content in before.items())
    return len(mistakes) + 1


def check_arguments_by_name(command):
    """--argument NAME=FILE gives what the flag of that argument gives, gradients too."""
    arrays = {**operands(), "slopes": uniform(H), "table": uniform(Q, K), "sinks": uniform(H), "change": uniform(2, 2), "dO": uniform(B, H, Q, V)}
    backward = ["--out", command.path("o"), "--grad", command.path("dO")]
    pairs = (
        (["--mod", "alibi={slopes}"], ["--mod", "alibi", "--argument", "mods[0].slope={slopes}"]),
        (["--mod", "bias={table}"], ["--mod", "bias", "--argument", "mods[0].bias={table}"]),
        (["--normalizer", "sink", "--sink", "{sinks}"], ["--normalizer", "sink", "--argument", "normalizer.sink={sinks}"]),
        (["--normalizer", "chain", "--transitions", "{change}"], ["--normalizer", "chain", "--argument", "normalizer.transitions={change}"]),
    )
    for flags, named in pairs:
        want, got = command.gradients([*flags, *backward], arrays), command.gradients([*named, *backward], arrays)
        assert want.keys() == got.keys() and len(want) == 4, (named, want.keys(), got.keys())
        for name, gradient in want.items():
            np.testing.assert_array_equal(got[name], gradient, err_msg=f"{named}: {name}")
    both = command.run(arrays, ["--mod", "alibi={slopes}", "--argument", "mods[0].slope={slopes}", "--out", command.path("o")], check=False)
    assert both.returncode == 1 and "--argument mods[0].slope: expected nothing, because --mod gives its file" in both.stderr.replace("'", ""), both.stderr
    # The engine's own arguments of forgetting gates, which are sums of their logarithms.
    arrays = {**operands(), "gates": uniform(B, H, K, low=-1.0, high=0.0), "dO": uniform(B, H, Q, V)}
    arrays["sums"] = np.cumsum(arrays["gates"], -1)[:, :, None]
    arrays["rows"] = arrays["sums"].swapaxes(-1, -2)[:, :, K - Q :]
    common = [*backward, "--mask", "causal"]
    want = command.gradients([*common, "--mod", "forget={gates}"], arrays)
    got = command.gradients([*common, "--mod", "forget", "--argument", "mods[0].query={rows}", "--argument", "mods[0].key={sums}"], arrays)
    assert sorted(want) == ["key", "mods[0].log_forget", "query", "value"] and sorted(got) == ["key", "mods[0].key", "mods[0].query", "query", "value"], (sorted(want), sorted(got))
    for name in ("query", "key", "value"):
        np.testing.assert_allclose(got[name], want[name], rtol=0, atol=1e-13)
    # d log f_l is the sum of the gradients behind l: of keys and of queries.
    both = got["mods[0].key"][:, :, 0].copy()
    both[:, :, K - Q :] += got["mods[0].query"][..., 0]
    np.testing.assert_allclose(np.cumsum(both[..., ::-1], -1)[..., ::-1], want["mods[0].log_forget"], rtol=0, atol=1e-13)
    return len(pairs) + 1


def check_explained_alone(command):
    """--explain without a result says what --out would run."""
    alone, written = (command.run(operands(), ["--explain", *out]).stdout for out in ([], ["--out", command.path("o")]))
    assert alone == written and "softmax" in alone, (alone, written)
    return 1


def check_help(command):
    """--help names everything that the error about an unknown name lists."""
    text, count = subprocess.run([command.fovea, "attend", "--help"], capture_output=True, text=True, check=True).stdout, 0
    for flag in ("--score", "--mod", "--mask", "--normalizer"):
        run = command.run(operands(), ["--out", command.path("o"), flag, "nonsense"], check=False)
        names = run.stderr.split("(")[1].split(")")[0].split(", ")
        assert run.returncode == 1 and len(names) > 5, run
        help_of = " ".join(text.split(f"\n  {flag} ")[1].split("\n  --")[0].split())
        said = re.split(r"[(,=\[ ]+", help_of)
        assert not set(names) - set(said), (flag, set(names) - set(said), help_of)
        count += len(names)
    # Arguments that have no flag of their own are named too.
    without_flag = " ".join(text.split()).split("without a flag:")[1].split(";")[0]
    assert "score.temperature" in text and "normalizer.scale" in text and "normalizer.sink" not in without_flag, text
    return count


def check_packed(command):
    """A packed batch gives what its entries give alone, gradients too; wrong starts are refused."""
    queries, keys = (3, 1, 5), (4, 7, 5)
    starts = {name: [sum(lengths[:e]) for e in range(len(lengths) + 1)] for name, lengths in (("query", queries), ("key", keys))}
    arrays = {"q": uniform(1, H, sum(queries), D), "k": uniform(1, KV, sum(keys), D), "v": uniform(1, KV, sum(keys), V), "dO": uniform(1, H, sum(queries), V),
              "slopes": uniform(H), "sinks": uniform(H), "gates": uniform(1, H, sum(queries), V)}
    rows = {"q": "query", "dO": "query", "gates": "query", "k": "key", "v": "key"}
    packed = ["--query-starts", ",".join(map(str, starts["query"])), "--key-starts", ",".join(map(str, starts["key"]))]
    outputs = ["--out", command.path("o"), "--lse", command.path("l"), "--weights", command.path("w"), "--grad", command.path("dO")]
    settings = (
        (["--mask", "causal", "--mod", "alibi={slopes}", "--gate", "{gates}"], [None] * 3),
        (["--rope", "rope(4)", "--mask", "causal", "--normalizer", "sink", "--sink", "{sinks}"], [None] * 3),
        (["--mask", "causal | lengths(1,2,3)", "--query-offset", "2,0,1"], ["2", "0", "1"]),
        (["--rope", "rope(2,interleaved)", "--query-offset", "3"], ["3"] * 3),
    )
    for flags, offsets in settings:
        got = command.gradients([*flags, *packed, *outputs], arrays)
        results = {name: np.load(command.path(name)) for name in "olw"}
        assert results["w"].shape == (1, H, sum(queries), max(keys)), results["w"].shape
        sums = {}
        for e, offset in enumerate(offsets):
            part = {name: array[:, :, starts[rows[name]][e] : starts[rows[name]][e + 1]] if name in rows else array for name, array in arrays.items()}
            own = [flag.replace("lengths(1,2,3)", f"lengths({e + 1})") for flag in flags]
            if offset is not None:
                own[own.index("--query-offset") + 1] = offset
            alone = command.gradients([*own, *outputs], part)
            inside = slice(starts["query"][e], starts["query"][e + 1])
            for name, tolerance in (("o", 1e-13), ("l", 1e-13), ("w", 1e-13)):
                want = np.load(command.path(name))
                columns = slice(0, keys[e]) if name == "w" else slice(None)
                np.testing.assert_allclose(results[name][:, :, inside][..., columns] if name != "l" else results["l"][:, :, inside], want, rtol=0, atol=tolerance, err_msg=f"{flags}: {name}")
                assert name != "w" or not results["w"][:, :, inside, keys[e] :].any()
            assert alone.keys() == got.keys(), (alone.keys(), got.keys())
            for name, gradient in alone.items():
                if name in ("query", "key", "value", "gate"):
                    which = "query" if name in ("query", "gate") else "key"
                    np.testing.assert_allclose(got[name][:, :, starts[which][e] : starts[which][e + 1]], gradient, rtol=0, atol=1e-13, err_msg=f"{flags}: {name}")
                else:
                    sums[name] = sums.get(name, 0) + gradient
        for name, gradient in sums.items():
            np.testing.assert_allclose(got[name], gradient, rtol=0, atol=1e-12, err_msg=f"{flags}: {name}")
    out = ["--out", command.path("o")]
    mistakes = (
        (["--query-starts", "0,9"], "--key-starts: expected numbers beside --query-starts, got none"),
        (["--key-starts", "0,16"], "--query-starts: expected numbers beside --key-starts, got none"),
        (["--query-starts", "0,3,9", "--key-starts", "0,16"], "--key-starts: expected as many numbers as --query-starts has, 3, got 2"),
        (["--query-starts", "0", "--key-starts", "0"], "--query-starts: expected at least two numbers, got 0"),
        (["--query-starts", "1,9", "--key-starts", "0,16"], "--query-starts: expected numbers that ascend from 0 to the 9 rows of --query, got 1 as the first"),
        (["--query-starts", "0,4,3,9", "--key-starts", "0,4,11,16"], "--query-starts: expected numbers that ascend from 0 to the 9 rows of --query, got 3 after 4"),
        (["--query-starts", "0,9", "--key-starts", "0,15"], "--key-starts: expected numbers that ascend from 0 to the 16 rows of --key, got 15 as the last"),
        ([*packed, "--local-p", "2", "--local-query", "{dO}", "--local-vector", "{dO}"], "--local-p: expected a padded batch, without --query-starts"),
        ([*packed, "--weights", command.path("w"), "--weight-rows", "0"], "--weight-rows: expected a padded batch, without --query-starts"),
        ([*packed, "--mask", "causal", "--mod", "forget={slopes}"], "--mod forget: expected no file: with --query-starts its sums come by --argument"),
        ([*packed, "--query-offset", "1,2"], "--query-offset: expected one offset, or one for each of 3 batch entries, got 2 offsets"),
    )
    for flags, words in mistakes:
        run = command.run(arrays, [*flags, *out], check=False)
        assert run.returncode == 1 and words in run.stderr.replace("':", ":"), (flags, run)
    run = command.run({**arrays, "q": uniform(2, H, 9, D)}, [*packed, *out], check=False)
    assert run.returncode == 1 and "--query: expected a batch, with --query-starts, of 1" in run.stderr.replace("':", ":"), run
    return len(settings) + len(mistakes) + 1


def check_short_forms(command):
    """The help of each short form of --argument names the argument and its shape, and the engine expects this shape."""
    text = " ".join(subprocess.run([command.fovea, "attend", "--help"], capture_output=True, text=True, check=True).stdout.split())
    sizes = {"hidden": HIDDEN, "query_dim + key_dim": 2 * D, "query_dim": D, "key_dim": D, "key_len": K, "heads": H}
    forms = re.findall(r"--(\S+) FILE ((?:score|normalizer)\.\w+) (\[[^]]*\](?: or \[[^]]*\])?) of ([a-z-]+(?:, [a-z-]+)*(?: or [a-z-]+)?)", text)
    files = {**operands(), "wrong": uniform(1, 1, 1, 1, 1)}
    count = 0
    for flag, argument, shape, parts in forms:
        for part in re.split(", | or ", parts):
            if part == "s" or part in ("learned", "potentials"):
                continue  # the formula behind the names
            arrays, flags = dict(files), ["--score" if argument.startswith("score.") else "--normalizer", part, "--out", command.path("o")]
            for other, name, its_shape, its_parts in forms:
                if part not in re.split(", | or ", its_parts):
                    continue
                array = [int(sizes.get(axis.removeprefix("at least "), axis)) for axis in its_shape[1:].split("]")[0].split(", ")]
                arrays[other] = uniform(*array)
                flags += [f"--{other}", "{wrong}" if other == flag else "{" + other + "}"]
            if part == "location":
                del arrays["k"]
            expected = shape
            for name, number in sizes.items():
                expected = expected if flag == "concat-matrix" and name == "hidden" else re.sub(rf"\b{re.escape(name)}\b", str(number), expected)
            run = command.run(arrays, flags, check=False)
            assert run.returncode == 1 and f"--{flag}: expected " in run.stderr.replace("'", "") and f"{expected}, " in run.stderr, (flag, part, expected, run.stderr)
            count += 1
    assert len(forms) == 12 and count == 18, (forms, count)
    return count


def check_shapes(command):
    """A file of any shape in the place of another either fits or is refused in one line."""
    count = 0
    for case, _, _ in cases():
        arrays = {**case.arrays, "dO": uniform(B, H, Q, V)}
        if "v" not in arrays and not isinstance(case, Latent):
            continue
        for name in arrays:
            shape = random.integers(0, 9, int(random.integers(0, 6))) if random.integers(2) else [*arrays[name].shape, 1][int(random.integers(2)) :]
            flags = [*case.flags, "--out", command.path("o"), "--grad", command.path("dO"), "--grad-out", str(command.folder / "gradients")]
            run = command.run({**arrays, name: uniform(*shape)}, flags, check=False)
            assert run.returncode == 0 or run.returncode == 1 and run.stderr.startswith(("fovea: ", "fovea attend: ")) and run.stderr.count("\n") == 1, (flags, name, shape, run)
            count += 1
    return count


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fovea", required=True)
    fovea = parser.parse_args().fovea
    with tempfile.TemporaryDirectory() as folder:
        command = Command(fovea, folder)
        count = sum(check_case(command, *case) for case in cases()) + check_argmax(command) + check_samples(command) + check_dropout_and_kernels(command) + check_arguments_by_name(command) + check_help(command) + check_explained_alone(command) + check_short_forms(command) + check_packed(command)
        print(f"{count} cases agree with NumPy; {check_mistakes(command)} mistakes are refused; {check_shapes(command)} shapes are refused or fit")


if __name__ == "__main__":
    sys.exit(main())
