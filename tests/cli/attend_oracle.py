"""fovea attend against NumPy in double: scores, masks, grouped heads, log-sum-exp, weights; and damaged files."""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

random = np.random.default_rng(1)


def mask_bits(name, batch, queries, keys, offset):
    """offset: one for all entries, or a list with one for each."""
    if isinstance(offset, list):
        return np.concatenate([mask_bits(name, batch, queries, keys, own)[b : b + 1] for b, own in enumerate(offset)])
    p = np.arange(queries)[:, None] + offset
    j = np.arange(keys)[None, :]
    causal = j <= p
    window = (j >= p - 3) & (j <= p + 1)
    is_global = np.isin(j, [0, 5]) | np.isin(p, [0, 5])
    lengths = np.stack([np.broadcast_to(j < n, (queries, keys)) for n in (keys - 1, keys // 2)[:batch]])
    table = {
        "everything": np.ones((queries, keys), bool),
        "causal": causal,
        "window(3,1)": window,
        "causal & window(3,1) | global(0,5)": (causal & window) | is_global,
        "~(causal | global(0,5))": ~(causal | is_global),
    }
    bits = lengths if name.startswith("lengths") else table[name]
    return np.broadcast_to(bits, (batch, queries, keys))[:, None]


def attention(q, k, v, score, parameters, scale, bits):
    repeat = q.shape[1] // k.shape[1]
    k, v = np.repeat(k, repeat, 1), np.repeat(v, repeat, 1)
    if score == "bilinear":
        s = np.einsum("bhjd,de,bhie->bhij", k, parameters["bilinear"], q)
    elif score == "additive":
        wq = q @ parameters["additive-query"].T
        uk = k @ parameters["additive-key"].T
        s = np.tanh(wq[:, :, :, None] + uk[:, :, None]) @ parameters["additive-vector"]
    else:
        s = q @ k.swapaxes(-1, -2)
        scale = q.shape[-1] ** -0.5 if scale is None and score == "scaled-dot" else scale
    s = s * (1.0 if scale is None else scale)
    s = np.where(bits, s, -np.inf)
    top = s.max(-1, keepdims=True, initial=-np.inf)
    e = np.where(np.isneginf(top), 0.0, np.exp(s - np.where(np.isneginf(top), 0.0, top)))
    total = e.sum(-1, keepdims=True)
    with np.errstate(divide="ignore"):
        lse = np.where(total > 0, top + np.log(total), -np.inf)[..., 0]
    weights = np.divide(e, total, out=np.zeros_like(e), where=total > 0)
    return weights @ v, lse, weights


def mod_scores(s, mods, p, j):
    for name, argument in mods:
        if name.startswith("softcap"):
            cap = float(name[8:-1])
            s = cap * np.tanh(s / cap)
        elif name == "alibi":
            s = s - argument[..., None, None] * (p - j)
        elif name == "bias":
            s = s + argument
        else:  # T5's buckets, from the paper's description
            buckets, far, direction = name[9:-1].split(",")
            buckets, far, d = int(buckets), int(far), p - j
            first = 0
            if direction == "bidirectional":
                buckets //= 2
                first = np.where(d < 0, buckets, 0)
                d = np.abs(d)
            else:
                d = np.maximum(d, 0)
            near = buckets // 2
            with np.errstate(divide="ignore"):
                large = near + (np.log(np.maximum(d, 1) / near) / np.log(far / near) * (buckets - near)).astype(int)
            s = s + argument[:, first + np.where(d < near, d, np.minimum(large, buckets - 1))]
    return s


def check_mods(fovea, path):
    """Mods in their order, and the gradient of each tensor along a random direction by central differences."""
    batch, heads, queries, keys, dim = 2, 2, 30, 50, 8
    shapes = {"q": (batch, heads, queries, dim), "k": (batch, heads, keys, dim), "v": (batch, heads, keys, dim), "do": (batch, heads, queries, dim)}
    p, j = np.arange(queries)[:, None] + keys - queries, np.arange(keys)[None, :]
    bits = np.broadcast_to(j <= p, (batch, 1, queries, keys))
    normalizers = [["softmax"], ["sink"], ["sigmoid(-0.5)"]]
    lists = [[("softcap(0.5)", None)], [("alibi", (heads,))], [("bias", (queries, keys))], [("bias", (heads, queries, keys))],
             [("relative(8,20,bidirectional)", (heads, 8))], [("relative(6,40,causal)", (heads, 6)), ("softcap(2)", None), ("alibi", (heads,))]]
    for turn, mods in enumerate(lists):
        (normalizer,) = normalizers[turn % 3]
        arrays = {name: random.uniform(-1, 1, shape) for name, shape in shapes.items()}
        arrays |= {f"m{n}": random.uniform(-1, 1, shape) for n, (_, shape) in enumerate(mods) if shape}
        if normalizer == "sink":
            arrays["sink"] = random.uniform(-1, 1, heads)
        for name, array in arrays.items():
            np.save(path(name), array)
        flags = ["--normalizer", normalizer] + (["--sink", path("sink")] if normalizer == "sink" else [])
        flags += [part for n, (name, shape) in enumerate(mods) for part in ("--mod", f"{name}={path(f'm{n}')}" if shape else name)]
        folder = str(Path(path("o")).parent / "gradients")
        subprocess.run([fovea, "attend", "--query", path("q"), "--key", path("k"), "--value", path("v"), "--out", path("o"), "--mask", "causal",
                        "--grad", path("do"), "--grad-out", folder, *flags], check=True)

        def output(a):
            s = mod_scores(a["q"] @ a["k"].swapaxes(-1, -2) / dim**0.5, [(name, a.get(f"m{n}")) for n, (name, _) in enumerate(mods)], p, j)
            s = np.where(bits, s, -np.inf)
            if normalizer.startswith("sigmoid"):
                return 1 / (1 + np.exp(-(s - 0.5))) @ a["v"]
            e = np.exp(s)
            extra = np.exp(a["sink"])[None, :, None, None] if "sink" in a else 0.0
            return e / (e.sum(-1, keepdims=True) + extra) @ a["v"]

        assert np.allclose(np.load(path("o")), output(arrays), rtol=0, atol=1e-12), mods
        files = {"q": "query", "k": "key", "v": "value"} | {f"m{n}": f"mods[{n}].{'slope' if name == 'alibi' else 'table' if name.startswith('rel') else 'bias'}"
                                                            for n, (name, shape) in enumerate(mods) if shape}
        files |= {"sink": "normalizer.sink"} if normalizer == "sink" else {}
        for name, file in files.items():
            gradient, step = np.load(f"{folder}/{file}.npy").reshape(arrays[name].shape), 1e-5
            direction = random.uniform(-1, 1, arrays[name].shape)
            up, down = ((output({**arrays, name: arrays[name] + sign * step * direction}) * arrays["do"]).sum() for sign in (1, -1))
            numeric = (up - down) / (2 * step)
            assert abs(numeric - (gradient * direction).sum()) < 1e-7 * max(1, abs(numeric)), (mods, file, numeric)
    return len(lists)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--fovea", required=True)
    fovea = parser.parse_args().fovea
    cases = 0
    with tempfile.TemporaryDirectory() as folder:
        path = lambda name: str(Path(folder) / f"{name}.npy")
        for score in ("scaled-dot", "dot", "bilinear", "additive"):
            for mask in ("everything", "causal", "window(3,1)", "causal & window(3,1) | global(0,5)", "~(causal | global(0,5))", "lengths"):
                for dtype in (np.float32, np.float64):
                    batch, heads, kv_heads, queries, keys, dim, value_dim, hidden = 2, 4, 2, int(random.integers(1, 70)), int(random.integers(6, 150)), 12, 7, 9
                    offset = (None, 2, [keys // 2, -1])[cases % 3]
                    scale = None if cases % 2 else 0.7
                    data = {"q": (batch, heads, queries, dim), "k": (batch, kv_heads, keys, dim), "v": (batch, kv_heads, keys, value_dim)}
                    shapes = {"bilinear": {"bilinear": (dim, dim)},
                              "additive": {"additive-query": (hidden, dim), "additive-key": (hidden, dim), "additive-vector": (hidden,)}}.get(score, {})
                    arrays = {name: random.uniform(-1, 1, shape).astype(dtype) for name, shape in {**data, **shapes}.items()}
                    for name, array in arrays.items():
                        np.save(path(name), array)
                    expression = f"lengths({keys - 1},{keys // 2})" if mask == "lengths" else mask
                    command = [fovea, "attend", "--query", path("q"), "--key", path("k"), "--value", path("v"), "--out", path("o"), "--lse", path("l"),
                               "--weights", path("w"), "--score", score, "--mask", expression, "--threads", "2"]
                    command += [part for name in shapes for part in ("--" + name, path(name))]
                    command += [] if offset is None else ["--query-offset", str(offset).strip("[]").replace(" ", "")]
                    command += [] if scale is None else ["--scale", str(scale)]
                    subprocess.run(command, check=True)
                    bits = mask_bits(mask, batch, queries, keys, keys - queries if offset is None else offset)
                    wide = {name: array.astype(np.float64) for name, array in arrays.items()}
                    expected = attention(wide["q"], wide["k"], wide["v"], score, wide, scale, bits)
                    # |score| <= dim, so the error of a score is at most dim·eps per term, the relative error of a weight the same; 8 for exp and sums.
                    bound = 8 * dim * keys ** 0.5 * np.finfo(dtype).eps
                    for name, want in zip("olw", expected):
                        got = np.load(path(name))
                        assert got.dtype == dtype and got.shape == want.shape, (name, got.dtype, got.shape, want.shape)
                        with np.errstate(invalid="ignore"):  # -inf - -inf, where == already says that they agree
                            error = np.abs(got - want)
                        same = (got == want) | (error <= bound * np.maximum(1, np.abs(want)))
                        assert same.all(), (score, mask, dtype, name, np.nanmax(error))
                    cases += 1
        cases += check_mods(fovea, path)
        for flags, words in ((["--mod", "softcap(0)"], "--mod, column 1"), (["--mod", "alibi=" + path("q")], "mods[0].slope"), (["--mod", "bias"], "bias"),
                             (["--mod", "softcap(2)=" + path("q")], "no file")):
            run = subprocess.run([fovea, "attend", "--query", path("q"), "--key", path("k"), "--value", path("v"), "--out", path("o"), *flags], capture_output=True, text=True)
            assert run.returncode == 1 and words in run.stderr and run.stderr.count("\n") == 1, (flags, run)
        good = Path(path("q")).read_bytes()
        np.save(path("fortran"), np.asfortranarray(random.uniform(size=(2, 3, 4, 5))))
        np.save(path("integers"), np.zeros((1, 1, 2, 2), np.int32))
        np.save(path("three"), np.zeros((1, 2, 2), np.float32))
        damaged = {"empty": b"", "junk": bytes(random.integers(0, 256, 500, dtype=np.uint8)), "short": good[: len(good) // 2], "header": good[:40],
                   "long": good + b"x", "huge": good.replace(b"(2,", b"(2000000000000,", 1)}
        for name, content in damaged.items():
            Path(path(name)).write_bytes(content)
        for name in [*damaged, "fortran", "integers", "three", "absent"]:
            run = subprocess.run([fovea, "attend", "--query", path(name), "--key", path("k"), "--value", path("v"), "--out", path("o")],
                                 capture_output=True, text=True)
            assert run.returncode == 1 and run.stderr.startswith(("fovea: ", "fovea attend: ")) and run.stderr.count("\n") == 1, (name, run)
        for _ in range(200):  # any damage is read or refused, and never more than that
            content = bytearray(good[:200])
            for at in random.integers(0, len(content), 1 + int(random.integers(6))):
                content[at] = random.integers(256)
            content = bytes(content[: int(random.integers(1, len(content) + 1))] if random.integers(2) else content) + good[200:]
            Path(path("fuzzed")).write_bytes(content)
            run = subprocess.run([fovea, "attend", "--query", path("fuzzed"), "--key", path("k"), "--value", path("v"), "--out", path("o")],
                                 capture_output=True, text=True, errors="replace", timeout=60)
            assert run.returncode == 0 or run.returncode == 1 and run.stderr.startswith(("fovea: ", "fovea attend: ")), (content, run)
        run = subprocess.run([fovea, "attend", "--query", path("q"), "--key", path("k"), "--value", path("v"), "--out", path("o"), "--mask", "causal & windw(1,2)"],
                             capture_output=True, text=True)
        assert run.returncode == 1 and "column 10" in run.stderr, run
    print(f"{cases} cases agree with NumPy; damaged files are refused")


if __name__ == "__main__":
    sys.exit(main())
